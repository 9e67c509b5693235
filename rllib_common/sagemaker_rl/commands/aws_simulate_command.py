"""``battlesnake-gym aws simulate``: simulate a SageMaker training job."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from battlesnake_gym.common.command_line import Parser, natural, output_dir, positive, print_error
from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import PRIMARY_JOB, SECONDARY_JOB, log_line
from sagemaker_rl.job.source_files import copy_project_sources
from sagemaker_rl.job.stop_signals import handled_signals
from sagemaker_rl.simulator.local_job import (
    REGION,
    make_s3_client,
    pack_sources,
    parse_channels,
    parse_hyperparameters,
    simulated_aws,
)

_BUCKET_NAME = "sagemaker-local"
"""Name of the simulated S3 bucket."""

_MAX_RUNTIME_S = 28 * 86_400
"""Maximum runtime of a job, in seconds, which is the longest that AWS allows."""


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym aws simulate",
        description="Simulate a SageMaker training job on this machine. Each instance is a "
        "process of the real sagemaker-training program, and moto simulates S3. Example: "
        "aws simulate train-mabs.py --instance-count 3 --hyperparameters algorithm=APEX minutes=1",
    )
    add = parser.add_argument
    add("entry_point", help="training script, such as train-mabs.py")
    add("--source-dir", type=Path, help="directory of the script (default: this project's scripts)")
    add("--dependencies", type=Path, nargs="*", default=[],
        help="more directories to copy next to the script, besides our packages")  # fmt: skip
    add("--instance-count", type=positive, default=1, help="number of instances")
    add("--secondary-instance-count", type=natural, default=0,
        help="number of instances of a secondary job that runs env runners")  # fmt: skip
    add("--hyperparameters", nargs="+", default=[], metavar="NAME=VALUE",
        help="hyperparameters as NAME=VALUE, JSON objects or .json files")  # fmt: skip
    add("--channels", nargs="+", default=[], metavar="NAME=PATH",
        help="file or directory of each data channel, such as policy=runs/first/model")  # fmt: skip
    add("--job-dir", type=output_dir, default=Path("sagemaker-local") / "job",
        help="job directory; the job resumes from existing checkpoints")  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Simulate a job.

    The first Ctrl-C stops all instances; later ones kill all instances.

    Returns:
        Exit status of the first failed instance, or 0.
    """
    arguments = parser().parse_args(argv)
    try:
        requests = _make_requests(arguments)
        channels = parse_channels(arguments.channels)
        for name, data in channels.items():
            if not data.exists():
                raise HyperparameterError(f"--channels {name}: there is no {data}; check its path")
        sources = copy_project_sources(arguments.dependencies)
        source_dir = arguments.source_dir or Path(sources["source_dir"])
        if not (script := source_dir / arguments.entry_point).is_file():
            raise HyperparameterError(
                f"there is no {script}; the entry point must be a file in --source-dir"
            )
    except ValueError as error:
        return print_error("battlesnake-gym aws simulate", error)
    packed = pack_sources(source_dir, [Path(folder) for folder in sources["dependencies"]])
    return _run_jobs(requests, arguments.job_dir.absolute(), packed, channels)


def _make_requests(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return boto3's requests of the job, or of the primary and the secondary job."""
    given = parse_hyperparameters(arguments.hyperparameters)
    name, secondary = arguments.job_dir.absolute().name, arguments.secondary_instance_count
    jobs: list[tuple[str, int, Mapping[str, Any]]] = [(name, arguments.instance_count, {})]
    if secondary:
        common = {
            "s3_bucket": _BUCKET_NAME,
            "s3_prefix": name,
            "aws_region": REGION,
            "rl_num_instances_secondary": secondary,
        }
        jobs = [
            (kind, count, common | {"rl_cluster_type": kind})
            for kind, count in (
                (PRIMARY_JOB, arguments.instance_count),
                (SECONDARY_JOB, secondary),
            )
        ]
    program = {
        "sagemaker_program": arguments.entry_point,
        "sagemaker_submit_directory": f"s3://{_BUCKET_NAME}/source/sourcedir.tar.gz",
        "sagemaker_region": REGION,
    }
    return [
        {
            "TrainingJobName": job,
            "RoleArn": "arn:aws:iam::123456789012:role/simulated",
            "AlgorithmSpecification": {"TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": f"s3://{_BUCKET_NAME}"},
            "ResourceConfig": {
                "InstanceType": "local",
                "InstanceCount": count,
                "VolumeSizeInGB": 1,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": _MAX_RUNTIME_S},
            # SageMaker passes only strings, so the SDK encodes every value as JSON.
            "HyperParameters": {
                key: json.dumps(value) for key, value in {**cluster, **given, **program}.items()
            },
        }
        for job, count, cluster in jobs
    ]


def _run_jobs(
    requests: Sequence[dict[str, Any]], folder: Path, packed: bytes, channels: Mapping[str, Path]
) -> int:
    """Run the jobs at the same time, and return the exit status of the first failed instance."""
    from sagemaker_rl.simulator.training_jobs import Services, TrainingJobs, upload_folder

    parent = folder.parent if len(requests) == 1 else folder
    with simulated_aws() as environment:
        s3 = make_s3_client(environment)
        s3.create_bucket(Bucket=_BUCKET_NAME)
        s3.put_object(Bucket=_BUCKET_NAME, Key="source/sourcedir.tar.gz", Body=packed)
        inputs: list[dict[str, Any]] = []
        for name, data in channels.items():
            uri = f"s3://{_BUCKET_NAME}/channels/{name}"
            if data.is_dir():
                upload_folder(s3, uri, data)
            else:
                s3.upload_file(str(data), _BUCKET_NAME, f"channels/{name}/{data.name}")
            source = {"S3DataType": "S3Prefix", "S3Uri": uri}
            inputs.append({"ChannelName": name, "DataSource": {"S3DataSource": source}})
        service = TrainingJobs(parent, Services(s3, None, environment))
        try:
            for request in requests:
                request |= {"InputDataConfig": inputs} if inputs else {}
                service.create_training_job(**request)
            jobs = [service.get_job(request["TrainingJobName"]) for request in requests]
            with handled_signals(_stopper(jobs)):
                _print_logs(jobs)
        finally:
            service.kill_all()
    failures = {job.name: job.describe().get("FailureReason") for job in jobs}
    for name, reason in failures.items():
        if reason:
            log_line(f"{name} failed: {reason}")
    statuses = [status for job in jobs for status in job.exit_statuses if status]
    if statuses or any(failures.values()):
        return next(iter(statuses), 1)
    log_line(f"wrote {parent / jobs[0].name / 'model.tar.gz'}")
    return 0


def _stopper(jobs: Sequence[Any]) -> Callable[[int], None]:
    """Return a signal handler that stops all jobs, and kills them when called again."""
    actions = ["stop", "kill"]

    def on_signal(number: int) -> None:
        action = actions.pop(0) if len(actions) > 1 else actions[0]
        for job in jobs:
            getattr(job, action)()

    return on_signal


def _print_logs(jobs: Sequence[Any]) -> None:
    """Print the log lines of all jobs until the jobs end."""

    def print_log(job: Any) -> None:
        prefix = f"{job.name}/" if len(jobs) > 1 else ""
        for line in job.iter_log(wait=True):
            log_line(f"{prefix}{line}")

    threads = [threading.Thread(target=print_log, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
