"""``battlesnake-gym aws experiment``: reproduce the article's five trainings and two graphs."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from botocore.exceptions import BotoCoreError, ClientError
from tqdm import tqdm

from battlesnake_gym.common.command_line import (
    Parser,
    align_columns,
    bounded_number,
    print_error,
)
from battlesnake_rl.commands import published_experiment
from battlesnake_rl.commands.published_experiment import ACCOUNT_X, ARMS, SIMULATED_X, Arm
from sagemaker_rl.cluster.roles import SIMULATED_CPUS_VARIABLE
from sagemaker_rl.commands.aws_simulate_command import MAX_RUNTIME_S, job_dir
from sagemaker_rl.job import preflight
from sagemaker_rl.job.job_environment import (
    METRIC_DEFINITIONS,
    SECONDARY_JOB,
    log_line,
    num_instance_vcpus,
)
from sagemaker_rl.job.network import find_network
from sagemaker_rl.job.process_environment import quiet_sagemaker_sdk
from sagemaker_rl.job.source_files import (
    copy_project_sources,
    download_artifacts,
    training_image_uri,
)

_PROG = "battlesnake-gym aws experiment"
_POLL_INTERVAL_S = {SIMULATED_X: 2.0, ACCOUNT_X: 60.0}
"""Interval between two requests for the progress of a job, in seconds."""

_GRAPH_FILE = "graphs.png"


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog=_PROG,
        description="Train the five policies of the article on distributed training, and draw its "
        "two graphs with its claims next to ours. By default, SageMaker is simulated on this "
        "machine: the trainings run in turn, and one simulated minute is one CPU minute of the "
        "busiest simulated core. The same command resumes an interrupted experiment, also with "
        "more minutes.",
    )
    add = parser.add_argument
    add("--minutes", type=bounded_number(float, 0.01), default=published_experiment.DEFAULT_MINUTES,
        help="duration of each training, in minutes")  # fmt: skip
    add("--arms", nargs="+", choices=[arm.name for arm in ARMS], metavar="NAME",
        help=f"trainings to run (default: all): {', '.join(arm.name for arm in ARMS)}")  # fmt: skip
    add("--dir", type=job_dir, default=Path("published-experiment"),
        help="directory of the jobs and the graphs; its name begins the jobs' names")  # fmt: skip
    add("--draw-only", action="store_true", help="draw the graphs of the existing curves")
    add("--account", action="store_true", help="start the real jobs in your AWS account, at once")
    add("--role", help="IAM role of the real jobs (default: the role of this notebook)")
    add("--image-uri", help="training image (default: battlesnake-training:latest in your ECR)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the experiment.

    Returns:
        Exit status: 0 if all trainings are complete, 1 if a training has failed, 2 if a setting is
        invalid.
    """
    command = parser()
    arguments = command.parse_args(argv)
    arms = [arm for arm in ARMS if arguments.arms is None or arm.name in arguments.arms]
    x_column = ACCOUNT_X if arguments.account else SIMULATED_X
    folder: Path = arguments.dir
    runs = {arm.name: folder / f"{folder.name}-{arm.name}" for arm in ARMS}
    titles = {arm.name: arm.title for arm in ARMS}
    if not arguments.account and not torch.cuda.is_available():
        titles |= {arm.name: f"{arm.title} (no GPU here: CPU)" for arm in ARMS if arm.gpus}
    failed = False
    try:
        if not arguments.account:
            command.reject_given(arguments, ["role", "image_uri"], "without --account")
        if arguments.draw_only:
            names = ("minutes", "arms", "role", "image_uri")
            command.reject_given(arguments, names, "with --draw-only")
        else:
            failed = _Experiment(arguments, x_column).run(arms, runs, titles)
        drawn = {
            name: run
            for name, run in runs.items()
            if published_experiment.trained_minutes(run, x_column) > 0
        }
        if not drawn:
            hint = "leave out --draw-only" if arguments.draw_only else "see the lines above"
            return print_error(_PROG, f"{folder} has no curves; {hint}")
        published_experiment.draw(drawn, titles, folder / _GRAPH_FILE, x_column)
    except ValueError as error:
        return print_error(_PROG, error)
    except (BotoCoreError, ClientError) as error:
        return print_error(_PROG, f"AWS rejects a request: {error}")
    rows = published_experiment.table_rows(drawn, titles, x_column)
    sys.stdout.write(align_columns(rows))
    log_line(f"wrote {folder / _GRAPH_FILE}")
    return int(failed)


class _Experiment:
    """The jobs of the experiment, in a simulated or in a real account."""

    def __init__(self, arguments: Any, x_column: str) -> None:
        quiet_sagemaker_sdk()
        import sagemaker

        from sagemaker_rl.simulator.simulated_session import SimulatedSession

        self._minutes: float = arguments.minutes
        self._x_column = x_column
        self._simulated = x_column == SIMULATED_X
        self._session: Any = (
            SimulatedSession(arguments.dir) if self._simulated else sagemaker.Session()
        )
        self._image_uri = arguments.image_uri or training_image_uri(self._session)
        self._role = arguments.role or self._session.get_caller_identity_arn()
        self._sources = copy_project_sources()

    def run(self, arms: list[Arm], runs: dict[str, Path], titles: dict[str, str]) -> bool:
        """Run the trainings that are not complete, and return whether one has failed or stopped.

        Simulated trainings run in turn, and real trainings run at the same time, after the checks
        of all jobs. The jobs of an interrupted experiment in an account are found by their names.
        """
        prepared: list[tuple[Arm, list[Any]]] = []
        failed = False
        for arm in arms:
            minutes = published_experiment.trained_minutes(runs[arm.name], self._x_column)
            reason = arm.missing_reason if self._simulated else ""
            if minutes >= self._minutes or reason:
                log_line(f"{titles[arm.name]}: {reason or f'complete, {minutes:.1f} minutes'}")
                continue
            name = runs[arm.name].name
            is_new = self._simulated or minutes or not self._is_started(name)
            prepared.append((arm, self._create_estimators(arm, name) if is_new else []))
        for arm, estimators in prepared:
            # The first job writes the curves.
            for estimator, suffix in zip(estimators, ("", f"-{SECONDARY_JOB}"), strict=False):
                estimator.fit(wait=False, job_name=runs[arm.name].name + suffix)
            if self._simulated:
                job = self._wait(runs[arm.name].name, titles[arm.name])
                failed |= job["TrainingJobStatus"] != "Completed"
        for arm, _ in [] if self._simulated else prepared:
            job = self._wait(runs[arm.name].name, titles[arm.name])
            failed |= job["TrainingJobStatus"] != "Completed"
            if job["TrainingJobStatus"] != "Failed":  # A failed job has no model artifacts.
                data = job["ModelArtifacts"]["S3ModelArtifacts"]
                finished = SimpleNamespace(model_data=data, sagemaker_session=self._session)
                download_artifacts(finished, runs[arm.name])
        return failed

    def _is_started(self, name: str) -> bool:
        """Return whether the account has a job of this name and duration."""
        try:
            job = self._session.sagemaker_client.describe_training_job(TrainingJobName=name)
        except ClientError:
            return False
        minutes = float(job.get("HyperParameters", {}).get("minutes", "nan"))
        return minutes == self._minutes

    def _create_estimators(self, arm: Arm, job_name: str) -> list[Any]:
        """Return the estimators of a training's jobs, which are checked in a real account."""
        from sagemaker.rl import RLEstimator

        duration = "driver_cpu_minutes" if self._simulated else "minutes"
        # The SDK's limit of a day would end a longer training early.
        limit_s = MAX_RUNTIME_S if self._simulated else round(86_400 + 60 * self._minutes)
        network = find_network(self._session) if len(arm.instances) > 1 else {}
        estimators = []
        for index, (kind, count) in enumerate(arm.instances):
            values = arm.hyperparameters(index, self._session.default_bucket(), job_name)
            cpus = {SIMULATED_CPUS_VARIABLE: str(num_instance_vcpus(kind))}
            estimators.append(
                RLEstimator(
                    entry_point="train-mabs.py",
                    **self._sources,
                    image_uri=self._image_uri,
                    role=self._role,
                    sagemaker_session=self._session,
                    instance_type=kind,
                    instance_count=count,
                    max_run=limit_s,
                    hyperparameters={**values, duration: self._minutes},
                    environment=cpus if self._simulated else None,
                    metric_definitions=METRIC_DEFINITIONS,
                    **network,
                )
            )
        if not self._simulated:
            for estimator in estimators:
                preflight.check(estimator)
        return estimators

    def _wait(self, name: str, title: str) -> Any:
        """Show the progress of a training until it ends, and return the description of its job."""
        layout = "{desc} {percentage:3.0f}%|{bar}| {n:.1f} of {total:g} minutes{postfix}"
        with tqdm(
            total=self._minutes, desc=title, bar_format=layout, mininterval=10, disable=None
        ) as bar:
            while True:
                try:
                    job = self._session.sagemaker_client.describe_training_job(TrainingJobName=name)
                    metrics = {
                        one["MetricName"]: one["Value"]
                        for one in job.get("FinalMetricDataList", [])
                    }
                    scale = 1.0 if self._simulated else 60.0
                    reward = metrics.get(published_experiment.REWARD, math.nan)
                    bar.set_postfix_str(f"reward {reward:.1f}", refresh=False)
                    now = min(metrics.get(self._x_column, 0.0) / scale, self._minutes)
                    bar.update(now - bar.n)
                    if job["TrainingJobStatus"] != "InProgress":
                        break
                    time.sleep(_POLL_INTERVAL_S[self._x_column])
                except KeyboardInterrupt:
                    if not self._simulated:
                        raise  # Real jobs continue.
                    # The job writes a checkpoint, from which the same command resumes.
                    self._session.sagemaker_client.stop_training_job(TrainingJobName=name)
                    self._session.logs_for_job(name, wait=True)
                    raise
        status = str(job["TrainingJobStatus"])
        if status != "Completed":
            log_line(f"{title} has {status.lower()}: {job.get('FailureReason') or name}")
        return job
