"""Test the project in an AWS account: `make aws-receipt ACCOUNT=123456789012`.

The test trains on one instance, on two instances, and on two instance groups with spot capacity.
The test stops the spot job early. Then the test deploys a snake to Lambda, requests 50 moves,
publishes another snake, and deletes all resources. The test costs at most 2 dollars and runs for at
most 30 minutes. The script writes the results to `docs/project/receipt.json` and
`docs/project/receipt.md`. The page lists the requirements of the account. With the account
`simulated`, the whole test runs on this machine.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from battlesnake_gym.common.command_line import Parser, print_error
from battlesnake_gym.common.files import write_atomically
from battlesnake_server.aws import publish, snake_stack
from battlesnake_server.aws.stacks import Account
from battlesnake_server.commands import pack_command
from battlesnake_server.commands.aws_deploy_command import move_request_body

_COMMAND_NAME = "make aws-receipt"
_ROOT = Path(__file__).parents[1]
_RECEIPT_PAGE = _ROOT / "docs/project/receipt.md"
_PAGE_MARKERS = ("<!-- received -->\n", "<!-- of the table above: tools/aws_receipt.py -->\n")
"""Markers of the start and the end of the results in the page.

The script replaces the text between the two markers.
"""

_SIMULATED_ACCOUNT = "simulated"
_SNAKE_NAME = "receipt"
_NUM_MOVES = 50
_MAX_RUN_S, _MAX_WAIT_S = 900, 1200
"""Limits in seconds: training time of a job, and total duration of the spot job."""

_POLL_INTERVAL_S = 5.0
_TERMINAL_STATUSES = ("Completed", "Stopped", "Failed")
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_NUM_LOG_LINES = 3

_DOLLARS_PER_HOUR = {"ml.c5.2xlarge": 0.408, "ml.g4dn.xlarge": 1.505}
"""Price of each instance type in dollars per hour, from docs/research/costs.md.

The page states the price of the larger ml.g4dn.4xlarge instead of ml.g4dn.xlarge.
"""


@dataclass(frozen=True)
class _ReceiptJob:
    """A training job of the test.

    ``groups`` contains the instance type and the instance count of each instance group. ``stopped``
    is True if the test stops the job early.
    """

    groups: Mapping[str, tuple[str, int]]
    algorithm: str
    stopped: bool = False

    def price_dollars(self, seconds: float) -> float:
        """Return the price of ``seconds`` of this job on all instances, in dollars."""
        per_hour = sum(_DOLLARS_PER_HOUR[kind] * count for kind, count in self.groups.values())
        return per_hour * seconds / 3600


_JOBS = {
    "single": _ReceiptJob({"all": ("ml.c5.2xlarge", 1)}, "DQN"),
    "two-instances": _ReceiptJob({"all": ("ml.c5.2xlarge", 2)}, "APEX"),
    "groups-on-spot-stopped": _ReceiptJob(
        {"learns": ("ml.g4dn.xlarge", 1), "plays": ("ml.c5.2xlarge", 1)},
        "APEX",
        stopped=True,
    ),
}
_HYPERPARAMETERS = {"minutes": 10, "rl.training.config.min_time_s_per_iteration": 1}
_STOP_HYPERPARAMETERS = {"rl.training.stop.training_iteration": 3}


@dataclass(frozen=True)
class _ReceiptAccount:
    """A real or simulated AWS account for the test."""

    account: Account
    session: Any
    """Session of the SageMaker SDK."""
    deploy: Callable[[argparse.Namespace], str]
    """Function that creates the snake's stack and returns its URL."""
    side_by_side: bool
    """Whether jobs run at the same time."""


def main(argv: list[str] | None = None) -> int:
    """Run the test and write the receipt.

    Returns:
        The exit status: 1 if a step failed or a resource still exists, otherwise 0.
    """
    options = _create_parser().parse_args(argv)
    try:
        with _open_account(options) as place:
            if place.account.find_stack(_SNAKE_NAME):
                raise ValueError(
                    f"the account has a stack {_SNAKE_NAME}, which the test would delete; run "
                    f"`battlesnake-gym aws undeploy --name {_SNAKE_NAME}` if you do not need it"
                )
            receipt = _create_receipt(
                place, place.account.require_stack(options.stack), options.folder
            )
    except (ValueError, OSError, ClientError) as error:
        return print_error(_COMMAND_NAME, error)
    home = options.folder if options.account == _SIMULATED_ACCOUNT else _RECEIPT_PAGE.parent
    text = json.dumps(receipt, indent=2) + "\n"
    write_atomically(home / "receipt.json", lambda part: part.write_text(text))
    write_atomically(home / _RECEIPT_PAGE.name, lambda part: part.write_text(_render_page(receipt)))
    print(f"wrote {home / 'receipt.json'} and {home / _RECEIPT_PAGE.name}")
    return int(bool(receipt["left"] or any("error" in one for one in receipt["steps"].values())))


def _create_parser() -> Parser:
    """Create the command-line parser."""
    parser = Parser(prog=_COMMAND_NAME, description=__doc__)
    parser.add_argument("account", help=f"AWS account number, or {_SIMULATED_ACCOUNT}")
    parser.add_argument(
        "--stack", default="battlesnake", help="name of the stack created from notebook.yaml"
    )
    parser.add_argument("--folder", type=Path, default=Path("sagemaker-local/receipt"),
        help="output directory of the jobs")  # fmt: skip
    return parser


@contextmanager
def _open_account(options: argparse.Namespace) -> Iterator[_ReceiptAccount]:
    """Yield the account that ``options.account`` selects.

    Raises:
        ValueError: If the credentials belong to another account.
    """
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.account != _SIMULATED_ACCOUNT:
        import sagemaker

        ours = Account.from_session()
        if ours.account_id != options.account:
            raise ValueError(
                f"the credentials belong to account {ours.account_id}, not to {options.account}"
            )
        session = sagemaker.Session(ours.session)
        yield _ReceiptAccount(ours, session, lambda given: snake_stack.deploy(ours, given), True)
        return
    from battlesnake_server.aws.lambda_simulator import SimulatedAccount
    from sagemaker_rl.job.source_files import IMAGE_REPOSITORY
    from sagemaker_rl.simulator.simulated_session import IMAGE_MANIFEST, SimulatedSession

    with SimulatedAccount() as one, closing(SimulatedSession(options.folder / "jobs")) as session:
        images = one.session.client("ecr")
        # The deployment of the stack creates this repository.
        images.delete_repository(repositoryName=IMAGE_REPOSITORY, force=True)
        values = {"BucketName": "battlesnake-receipt", "RepositoryUrl": "https://example.org/x"}
        one.account.deploy_stack(options.stack, "notebook", values)
        manifest = json.dumps(IMAGE_MANIFEST)
        images.put_image(repositoryName=IMAGE_REPOSITORY, imageTag="latest", imageManifest=manifest)
        yield _ReceiptAccount(one.account, session, one.deploy, False)


def _create_receipt(
    place: _ReceiptAccount, stack: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Run all steps, delete the resources that they created, and return the receipt."""
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
    began = datetime.now(UTC)
    prefix = f"receipt-{began:%Y%m%d-%H%M%S}"
    steps: dict[str, dict[str, Any]] = {name: {} for name in ("snake", *_JOBS)}
    jobs: dict[str, Any] = {}

    def finish_job(name: str) -> None:
        """Wait for a job and store its results, or the error, in its step."""
        with _record_errors(steps[name]):
            steps[name] |= _wait_for_job(place, jobs[name], _JOBS[name], folder / name)

    try:
        for name, job in _JOBS.items():
            with _record_errors(steps[name]):
                jobs[name] = _start_job(place, job, outputs, prefix)
            if name in jobs and not place.side_by_side:
                finish_job(name)
        with _record_errors(steps["snake"]):
            _check_snake(place, folder, steps["snake"])
        for name in jobs if place.side_by_side else ():
            finish_job(name)
    finally:
        names = [one.latest_training_job.name for one in jobs.values()]
        _delete_resources(place, outputs["Bucket"], prefix, names)
    return {
        "when": f"{began:%Y-%m-%d %H:%M} UTC",
        "where": place.account.region if place.side_by_side else _SIMULATED_ACCOUNT,
        "seconds": round((datetime.now(UTC) - began).total_seconds()),
        "dollars": round(sum(one.get("dollars", 0.0) for one in steps.values()), 4),
        "steps": steps,
        "left": _list_remaining_resources(place, outputs["Bucket"], prefix, names),
    }


@contextmanager
def _record_errors(note: dict[str, Any]) -> Iterator[None]:
    """Store the text of an exception in ``note``.

    The remaining steps then still run.
    """
    try:
        yield
    except Exception as error:
        note["error"] = f"{type(error).__name__}: {error}"


def _start_job(
    place: _ReceiptAccount, job: _ReceiptJob, outputs: Mapping[str, str], prefix: str
) -> Any:
    """Check a training job with preflight, start the job and return its estimator."""
    from sagemaker.instance_group import InstanceGroup
    from sagemaker.rl import RLEstimator

    from sagemaker_rl.job import preflight
    from sagemaker_rl.job.source_files import copy_project_sources

    address = f"s3://{outputs['Bucket']}/{prefix}"
    machines: dict[str, Any] = {
        "instance_groups": [InstanceGroup(name, *group) for name, group in job.groups.items()]
    }
    if len(job.groups) == 1:
        ((kind, count),) = job.groups.values()
        machines = {"instance_type": kind, "instance_count": count}
    if job.stopped:
        kept = f"{address}/checkpoints"
        machines |= {"use_spot_instances": True, "max_wait": _MAX_WAIT_S, "checkpoint_s3_uri": kept}
    estimator = RLEstimator(
        entry_point="train-mabs.py",
        **copy_project_sources(),
        image_uri=f"{outputs['TrainingImages']}:latest",
        role=outputs["RoleArn"],
        sagemaker_session=place.session,
        base_job_name=_SNAKE_NAME,
        max_run=_MAX_RUN_S,
        output_path=address,
        code_location=address,
        hyperparameters=_HYPERPARAMETERS
        | {"algorithm": job.algorithm}
        | ({} if job.stopped else _STOP_HYPERPARAMETERS),
        **machines,
    )
    preflight.check(estimator)
    estimator.fit(wait=False)
    return estimator


def _wait_for_job(
    place: _ReceiptAccount, estimator: Any, job: _ReceiptJob, folder: Path
) -> dict[str, Any]:
    """Wait until a job ends.

    The function stops the spot job after the first iteration.

    Returns:
        The status, duration, price, artifacts and last log lines of the job.

    Raises:
        RuntimeError: If the job ended with an unexpected status.
    """
    from sagemaker_rl.job.source_files import download_artifacts

    name = estimator.latest_training_job.name
    is_stopping = False
    while (described := _describe_job(place, name))["TrainingJobStatus"] not in _TERMINAL_STATUSES:
        if job.stopped and not is_stopping and "training_iteration=" in _read_job_log(place, name):
            place.session.stop_training_job(name)
            is_stopping = True
        time.sleep(_POLL_INTERVAL_S)
    lines = _read_job_log(place, name).splitlines()
    seconds = described.get("BillableTimeInSeconds", described.get("TrainingTimeInSeconds", 0))
    status = described["TrainingJobStatus"]
    note = {
        "id": name,
        "status": status,
        "seconds": seconds,
        "dollars": round(job.price_dollars(seconds), 4),
    }
    if status != ("Stopped" if job.stopped else "Completed"):
        raise RuntimeError(f"{name} {status}: {described.get('FailureReason', lines[-3:])}")
    model = download_artifacts(estimator, folder) / "model"
    note["delivered"] = sorted(path.name for path in model.iterdir())
    return note | {"log": [one for one in lines if "training_iteration=" in one][-_NUM_LOG_LINES:]}


def _describe_job(place: _ReceiptAccount, name: str) -> dict[str, Any]:
    """Return SageMaker's description of a job."""
    described: dict[str, Any] = place.session.describe_training_job(name)
    return described


def _read_job_log(place: _ReceiptAccount, name: str) -> str:
    """Return the log of a job, in the format of the SDK."""
    with redirect_stdout(io.StringIO()) as printed:
        place.session.logs_for_job(name)
    return printed.getvalue()


def _check_snake(place: _ReceiptAccount, folder: Path, note: dict[str, Any]) -> None:
    """Deploy a snake, request moves, publish another snake, and delete the stack.

    The function adds the results to ``note``.
    """
    began = time.monotonic()
    first = _pack_snake(folder, "cautious", "#3366cc")
    second = _pack_snake(folder, "hungry", "#cc6633")
    url = place.deploy(snake_stack.parser().parse_args([str(first), "--name", _SNAKE_NAME]))
    note |= {"id": _SNAKE_NAME, "deploy_seconds": round(time.monotonic() - began)}
    answers = [
        _send_timed_request(f"{url}/move", move_request_body(seed))
        for seed in range(1, _NUM_MOVES + 1)
    ]
    took = sorted(milliseconds for milliseconds, _ in answers)
    note["moves"] = sum(answer["move"] in ("up", "down", "left", "right") for _, answer in answers)
    note["move_ms"] = {
        "median": statistics.median_low(took),
        "first": answers[0][0],
        "most": took[-1],
    }
    publish(second, _SNAKE_NAME, place.account.session)
    if (color := _send_timed_request(url)[1]["color"]) != "#cc6633":
        raise RuntimeError(f"the published snake has the color {color}, not #cc6633")
    note["kept"] = place.account.undeploy(_SNAKE_NAME)
    note["seconds"] = round(time.monotonic() - began)


def _pack_snake(folder: Path, name: str, color: str) -> Path:
    """Pack a built-in snake into a bundle and return the path of the bundle."""
    bundle = folder / f"{name}.zip"
    if pack_command.main(["--snake", name, "--color", color, "-o", str(bundle)]):
        raise RuntimeError(f"packing the snake {name} failed")
    return bundle


def _send_timed_request(url: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    """Send a request and measure the response time.

    Returns:
        The response time in milliseconds, and the decoded JSON response.
    """
    began = time.monotonic()
    with urllib.request.urlopen(url, body, 30) as answer:
        found: dict[str, Any] = json.load(answer)
    return round(1000 * (time.monotonic() - began)), found


def _delete_resources(place: _ReceiptAccount, bucket: str, prefix: str, names: list[str]) -> None:
    """Delete all resources of the test that still exist.

    The resources include the training jobs ``names``.
    """
    if place.account.find_stack(_SNAKE_NAME):
        place.account.undeploy(_SNAKE_NAME)
    logs = place.account.session.client("logs")
    for name in names:
        if _describe_job(place, name)["TrainingJobStatus"] not in _TERMINAL_STATUSES:
            place.session.stop_training_job(name)
        while _describe_job(place, name)["TrainingJobStatus"] not in _TERMINAL_STATUSES:
            time.sleep(_POLL_INTERVAL_S)
        for stream in _list_log_streams(place, name):
            logs.delete_log_stream(logGroupName=_LOG_GROUP, logStreamName=stream)
        place.session.sagemaker_client.delete_training_job(TrainingJobName=name)
    place.account.empty_bucket(bucket, prefix)


def _list_remaining_resources(
    place: _ReceiptAccount, bucket: str, prefix: str, names: list[str]
) -> list[str]:
    """List the resources of this test that still exist in the account."""
    found = [f"the stack {_SNAKE_NAME}"] if place.account.find_stack(_SNAKE_NAME) else []
    s3 = place.account.session.client("s3")
    with suppress(ClientError):
        s3.head_bucket(Bucket=place.account.bucket_name(_SNAKE_NAME))
        found.append(f"the bucket {place.account.bucket_name(_SNAKE_NAME)}")
    there = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    found += [f"s3://{bucket}/{one['Key']}" for one in there]
    for name in names:
        found += [f"the log {stream}" for stream in _list_log_streams(place, name)]
        with suppress(ClientError):
            found.append(f"the job {_describe_job(place, name)['TrainingJobName']}")
    return found


def _list_log_streams(place: _ReceiptAccount, name: str) -> list[str]:
    """Return the names of a job's log streams."""
    logs = place.account.session.client("logs")
    try:
        found = logs.describe_log_streams(logGroupName=_LOG_GROUP, logStreamNamePrefix=f"{name}/")
    except logs.exceptions.ResourceNotFoundException:
        return []
    return [one["logStreamName"] for one in found["logStreams"]]


def _render_page(receipt: Mapping[str, Any]) -> str:
    """Return the text of `docs/project/receipt.md` with the results of this receipt."""
    start, end = _PAGE_MARKERS
    before, _, rest = _RECEIPT_PAGE.read_text().partition(start)
    rows = []
    for name, one in receipt["steps"].items():
        came = " ".join((one.get("error") or one.get("status", "played, and taken away")).split())
        took, dollars = one.get("seconds", ""), one.get("dollars", 0.0)
        rows.append(f"| {name} | {came} | {took} | {dollars:.2f} | {one.get('id', '')} |\n")
    said = (
        f"{receipt['when']}, {receipt['where']}: {receipt['seconds']} seconds, "
        f"{receipt['dollars']:.2f} dollars; left: {', '.join(receipt['left']) or 'nothing'}.\n\n"
        "| step | what came of it | seconds | dollars | id |\n|---|---|---|---|---|\n"
    )
    return f"{before}{start}{said}{''.join(rows)}{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    sys.exit(main())
