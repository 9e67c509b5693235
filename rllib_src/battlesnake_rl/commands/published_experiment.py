"""The experiment of the article on distributed training: its five trainings and their claims.

The article compares an MXNet baseline with DQN and APEX on one and on several instances, by the
mean reward and the mean length of games of five snakes over 210 minutes of training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battlesnake_rl.commands.runs_plot_command import load_progress, plot_curves
from sagemaker_rl.job.job_environment import PRIMARY_JOB, SECONDARY_JOB, num_instance_gpus
from sagemaker_rl.job.pinned_wheels import MXNET

DEFAULT_MINUTES = 210.0
"""Duration of each training in the article, in minutes."""

SIMULATED_X, ACCOUNT_X = "driver_cpu_minutes", "time_total_s"
"""Columns of ``progress.csv`` with the duration of a training, simulated and in an AWS account."""

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
class Arm:
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
    Arm("mxnet-1-core", "MXNet DQN, 1 core", "MXNET", 0, claims=(1.0, 1.0)),
    Arm("dqn-1-core", "DQN, 1 core", "DQN", 0),
    Arm("dqn-4-cores", "DQN, 4 cores", "DQN", 3),
    Arm("apex-12-cores", "APEX, 12 cores", "APEX", 11, ((_CPU_INSTANCE, 3),)),
    Arm("apex-gpu", "APEX, GPU and 12 cores", "APEX", None,
        ((_GPU_INSTANCE, 1), (_CPU_INSTANCE, 2)), (10.0, 3.0)),
)  # fmt: skip
"""The five trainings; the first is the baseline."""


def trained_minutes(run: Path, x_column: str) -> float:
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


def draw(runs: Mapping[str, Path], titles: Mapping[str, str], target: Path, x_column: str) -> None:
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


def table_rows(
    runs: Mapping[str, Path], titles: Mapping[str, str], x_column: str
) -> Sequence[Sequence[str]]:
    """Return the rows of a table with our results next to the article's claims."""
    rows = [["training", "minutes", "reward", "length", "reward x", "length x", "article"]]
    baseline = _final_means(runs[ARMS[0].name], x_column) if ARMS[0].name in runs else None
    for arm in ARMS:
        cells = ["0", "-", "-", "-", "-"]
        if run := runs.get(arm.name):
            means = _final_means(run, x_column)
            cells = [f"{number:.1f}" for number in (trained_minutes(run, x_column), *means)]
            cells += [
                f"{mean / base:.1f}" if baseline and base > 0 else "-"
                for mean, base in zip(means, baseline or means, strict=True)
            ]
        claims = f"at least {arm.claims[0]:g} x reward, {arm.claims[1]:g} x length"
        if arm is ARMS[0]:
            claims = "1 (trained for 20 hours before)"
        rows.append([titles[arm.name], *cells, claims])
    return rows
