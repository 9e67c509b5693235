"""``battlesnake-gym aws experiment``: reproduce the article's five trainings and two graphs.

The article compares an MXNet baseline with DQN and APEX on one and on several instances, by the
mean reward and the mean length of games of five snakes over 210 minutes of training.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    reports_errors,
)
from battlesnake_rl.commands.runs_plot_command import load_progress, plot_curves
from sagemaker_rl.cluster.roles import SIMULATED_CPUS_VARIABLE
from sagemaker_rl.commands.aws_simulate_command import MAX_RUNTIME_S, job_dir
from sagemaker_rl.job import preflight
from sagemaker_rl.job.job_environment import (
    METRIC_DEFINITIONS,
    PRIMARY_JOB,
    SECONDARY_JOB,
    log_line,
    num_instance_gpus,
    num_instance_vcpus,
)
from sagemaker_rl.job.network import find_network
from sagemaker_rl.job.pinned_wheels import MXNET
from sagemaker_rl.job.process_environment import quiet_sagemaker_sdk
from sagemaker_rl.job.source_files import (
    copy_project_sources,
    download_artifacts,
    training_image_uri,
)

_GRAPH_FILE = "graphs.png"

_DEFAULT_MINUTES = 210.0
"""Duration of each training in the article, in minutes."""

SIMULATED_X, ACCOUNT_X = "driver_cpu_minutes", "time_total_s"
"""Columns of ``progress.csv`` with the duration of a training, simulated and in an AWS account."""

_POLL_INTERVAL_S = {SIMULATED_X: 2.0, ACCOUNT_X: 60.0}
"""Interval between two requests for the progress of a job, in seconds."""

REWARD, LENGTH = "episode_reward_mean", "episode_len_mean"

_CPU_INSTANCE, _GPU_INSTANCE = "ml.m5.xlarge", "ml.g4dn.xlarge"
"""The article's instance type, and the nearest type to its ml.p2.xlarge that torch supports."""

_LAST_FRACTION = 0.1
"""Fraction of a training, at its end, over which the table averages."""

_GAMES = {
    "num_snakes": 5,
    "board_size": 11,
    # The baseline sees this turn and the previous turn.
    "observation": "bordered-51s",
    "frame_stack": 2,
    "rewards": "starter-pack",
    "action_mask": "none",
    "rl.training.config.ladder_cpu_fraction": 0,
}
"""Hyperparameters of all arms."""

_DQN = {
    "rl.training.config.gamma": 0.99,
    "rl.training.config.train_batch_size_per_learner": 512,
    "rl.training.config.epsilon_per_game": [0.4, 8.0],
}
"""Hyperparameters of DQN and APEX; the baseline has its published hyperparameters."""


@dataclass(frozen=True, slots=True)
class _Arm:
    """One training of the experiment.

    Attributes:
        name: Name of the training's job.
        title: Label of the curve.
        algorithm: Name of the algorithm.
        env_runners: Number of env runner processes; None for one per CPU except the driver's.
        instances: Instance type and number of instances, of the job or of each of two jobs.
        claims: Factors of the article by which reward and game length exceed the baseline's.
    """

    name: str
    title: str
    algorithm: str
    env_runners: int | None
    instances: tuple[tuple[str, int], ...] = ((_CPU_INSTANCE, 1),)
    claims: tuple[float, float] = (7.5, 2.0)

    @property
    def gpus(self) -> int:
        """Number of GPUs of the training."""
        return sum(num_instance_gpus(kind) * count for kind, count in self.instances)

    @property
    def missing_reason(self) -> str:
        """Reason why the training cannot be simulated here, or ""."""
        return MXNET.missing_reason() if self.algorithm == "MXNET" else ""

    def hyperparameters(self, job: int, bucket: str, prefix: str) -> dict[str, Any]:
        """Return the hyperparameters of a job, without its duration.

        Args:
            job: Index of the job.
            bucket: S3 bucket in which two jobs find each other.
            prefix: S3 key prefix for the address of the head node.
        """
        values: dict[str, Any] = {"algorithm": self.algorithm, **_GAMES}
        if self.env_runners is not None:
            values["num_env_runners"] = self.env_runners
        if self.algorithm != "MXNET":
            values |= _DQN
            if not self.gpus:  # A simulated instance may be on a machine with a GPU.
                values["rl.training.config.num_gpus_per_learner"] = 0
        if len(self.instances) > 1:
            values |= {
                "rl_cluster_type": (PRIMARY_JOB, SECONDARY_JOB)[job],
                "rl_num_instances_secondary": self.instances[1][1],
                "s3_bucket": bucket,
                "s3_prefix": prefix,
            }
        return values


ARMS = (
    _Arm("mxnet-1-core", "MXNet DQN, 1 core", "MXNET", 0, claims=(1.0, 1.0)),
    _Arm("dqn-1-core", "DQN, 1 core", "DQN", 0),
    _Arm("dqn-4-cores", "DQN, 4 cores", "DQN", 3),
    _Arm("apex-12-cores", "APEX, 12 cores", "APEX", 11, ((_CPU_INSTANCE, 3),)),
    _Arm("apex-gpu", "APEX, GPU and 12 cores", "APEX", None,
        ((_GPU_INSTANCE, 1), (_CPU_INSTANCE, 2)), (10.0, 3.0)),
)  # fmt: skip
"""The five trainings; the first is the baseline."""


def _trained_minutes(run: Path, x_column: str) -> float:
    """Return the duration of a training so far, in minutes; 0 if it has not started."""
    try:
        duration = load_progress(run)[-1].get(x_column, 0.0)
    except ValueError:
        return 0.0
    return duration / 60 if x_column == ACCOUNT_X else duration


def _final_means(run: Path, x_column: str) -> tuple[float, float]:
    """Return the mean reward and the mean length of games at the end of a training.

    The values are NaN if no game has ended.
    """
    rows = load_progress(run)
    start = (1 - _LAST_FRACTION) * rows[-1][x_column]
    last = [row for row in rows if row[x_column] > start and math.isfinite(row[REWARD])]
    count = len(last) or math.nan
    reward, length = (sum(row[name] for row in last) / count for name in (REWARD, LENGTH))
    return reward, length


def _draw(runs: Mapping[str, Path], titles: Mapping[str, str], target: Path, x_column: str) -> None:
    """Draw the graphs of reward and length, with the article's claims as dashed lines.

    Args:
        runs: Run directories, keyed by name of the arm.
        titles: Labels of the curves, keyed by name of the arm.
        target: Output file, ``.svg`` or ``.png``.
        x_column: `SIMULATED_X` or `ACCOUNT_X`.
    """
    marks: dict[str, dict[str, float]] = {}
    if ARMS[0].name in runs:
        baseline = _final_means(runs[ARMS[0].name], x_column)
        for index, column in enumerate((REWARD, LENGTH)):
            factors = sorted({arm.claims[index] for arm in ARMS[1:]})
            marks[column] = {
                f"article: {factor:g} x baseline": factor * baseline[index] for factor in factors
            }
    labeled = [(titles[name], run) for name, run in runs.items()]
    simulated = "simulated minutes (CPU minutes of the busiest core)"
    plot_curves(
        labeled, target, (REWARD, LENGTH), x_column, 25, marks,
        simulated if x_column == SIMULATED_X else "",
    )  # fmt: skip


def _table_rows(
    runs: Mapping[str, Path], titles: Mapping[str, str], x_column: str
) -> Sequence[Sequence[str]]:
    """Return the rows of a table with our results next to the article's claims."""
    rows = [["training", "minutes", "reward", "length", "reward x", "length x", "article"]]
    baseline = _final_means(runs[ARMS[0].name], x_column) if ARMS[0].name in runs else None
    for arm in ARMS:
        cells = ["0", "-", "-", "-", "-"]
        if run := runs.get(arm.name):
            means = _final_means(run, x_column)
            cells = [f"{number:.1f}" for number in (_trained_minutes(run, x_column), *means)]
            cells += [
                f"{mean / base:.1f}" if baseline and base > 0 else "-"
                for mean, base in zip(means, baseline or means, strict=True)
            ]
        claims = f"at least {arm.claims[0]:g} x reward, {arm.claims[1]:g} x length"
        if arm is ARMS[0]:
            claims = "1 (trained for 20 hours before)"
        rows.append([titles[arm.name], *cells, claims])
    return rows


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym aws experiment",
        description="Train the five policies of the article on distributed training, and draw its "
        "two graphs with its claims next to ours. By default, SageMaker is simulated on this "
        "machine: the trainings run in turn, and one simulated minute is one CPU minute of the "
        "busiest simulated core. The same command resumes an interrupted experiment, also with "
        "more minutes.",
    )
    add = parser.add_argument
    add("--minutes", type=bounded_number(float, 0.01), default=_DEFAULT_MINUTES,
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


@reports_errors
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
        drawn = {name: run for name, run in runs.items() if _trained_minutes(run, x_column) > 0}
        if not drawn:
            hint = "leave out --draw-only" if arguments.draw_only else "see the lines above"
            raise ValueError(f"{folder} has no curves; {hint}")
        _draw(drawn, titles, folder / _GRAPH_FILE, x_column)
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"AWS rejects a request: {error}") from error
    rows = _table_rows(drawn, titles, x_column)
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

    def run(self, arms: list[_Arm], runs: dict[str, Path], titles: dict[str, str]) -> bool:
        """Run the trainings that are not complete, and return whether one has failed or stopped.

        Simulated trainings run in turn, and real trainings run at the same time, after the checks
        of all jobs. The jobs of an interrupted experiment in an account are found by their names.
        """
        prepared: list[tuple[_Arm, list[Any]]] = []
        failed = False
        for arm in arms:
            minutes = _trained_minutes(runs[arm.name], self._x_column)
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

    def _create_estimators(self, arm: _Arm, job_name: str) -> list[Any]:
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
                    reward = metrics.get(REWARD, math.nan)
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
