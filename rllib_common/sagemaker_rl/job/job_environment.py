"""A training job: its folders, data channels and instances, what its log says, why it failed.

Everything is where SageMaker puts it, under ``/opt/ml``, or in one folder on a laptop.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker_rl.job.hyperparameters import HyperparameterError

_SDK_CHANNELS = ("code", "sm_drivers")
"""Channels in which the SageMaker SDK 3's `ModelTrainer` brings the sources and their starter."""

_ARCHIVE_SUFFIX = ".tar.gz"
"""What a job delivers ends so; SageMaker brings it to a channel as it is."""

_VCPUS_BY_SIZE = {"medium": 2, "large": 2, "xlarge": 4}
"""vCPUs by the last word of an instance type; ``8xlarge`` has eight times those of ``xlarge``."""

_GPUS_BY_FAMILY = {
    "g": {12: 4, 24: 4, 48: 8},
    "p2": {8: 8, 16: 16},
    "p3": {8: 4, 16: 8, 24: 8},
    "p4": {24: 8},
    "p5": {48: 8},
    "p6": {48: 8},
}
"""By family and size, where an instance has more than one."""

LOGGED_METRICS = (
    "training_iteration",
    "time_total_s",
    "env_steps",
    "agent_steps",
    "num_episodes",
    "episode_reward_mean",
    "episode_reward_min",
    "episode_reward_max",
    "episode_len_mean",
    "episode_len_min",
    "episode_len_max",
    "Snake_hit_wall",
    "Snake_hit_body",
    "Snake_was_eaten",
    "Killed_another_snake",
    "Starved",
    "Forbidden_move",
    "Longest_snake",
    "transitions_trained",
    "loss",
    "qf_mean",
    "env_steps_per_s",
    "transitions_per_s",
    "cpu_percent",
    "cpu_minutes",
    "ladder_cpu_fraction",
    "elo",
    "elo_low",
    "elo_high",
    "elo_best",
    "ladder_score",
)
"""What the log's line for an iteration shows, as far as it is known; SageMaker takes 40 at most."""

METRIC_DEFINITIONS = [
    {"Name": name, "Regex": rf"\b{name}=(-?[0-9.]+(?:e[+-]?[0-9]+)?)"} for name in LOGGED_METRICS
]
"""``metric_definitions`` of an estimator: the patterns by which CloudWatch reads those lines.

>>> import re
>>> re.findall(METRIC_DEFINITIONS[0]["Regex"], "training_iteration=2 episode_reward_mean=-1.5")
['2']
"""

_RLLIB_STYLE_METRICS = ("episode_reward_mean", "episode_reward_max")
"""What a line repeats at its end, as RLlib did years ago: ``RLEstimator`` looks for
that with ``default_metric_definitions(RLToolkit.RAY)``, as published examples do."""

FAILURE_FILE = Path("output") / "failure"
"""Under ``/opt/ml``. SageMaker shows its first 1024 characters as the job's ``FailureReason``."""

_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, a quota, a limit on a file's size."""


# Folders


def base_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """SageMaker's ``/opt/ml``, which a rehearsal puts elsewhere."""
    return Path(environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))


@dataclass(frozen=True, slots=True)
class JobPaths:
    """The folders of one training job; none is created here."""

    name: str
    output_dir: Path
    """Curves: ``progress.csv`` and TensorBoard files."""
    checkpoint_dir: Path
    """Where checkpoints are written to and resumed from."""
    model_dir: Path
    """What the job delivers: the exported policy."""
    in_sagemaker: bool
    intermediate_dir: Path | None = None
    """What is put here goes to S3 while the job runs."""

    @classmethod
    def from_environment(
        cls, name: str, runs: Path = Path("runs"), environ: Mapping[str, str] = os.environ
    ) -> JobPaths:
        """Folders as SageMaker names them, where it runs us; else all of them in ``runs/NAME``."""
        in_sagemaker = "SM_MODEL_DIR" in environ
        run = runs / name
        base = base_folder(environ)
        return cls(
            name=environ.get("TRAINING_JOB_NAME", name),
            output_dir=Path(environ.get("SM_OUTPUT_DATA_DIR", base / "output" / "data"))
            if in_sagemaker
            else run,
            checkpoint_dir=base / "checkpoints" if in_sagemaker else run / "checkpoints",
            model_dir=Path(environ["SM_MODEL_DIR"]) if in_sagemaker else run / "model",
            in_sagemaker=in_sagemaker,
            intermediate_dir=Path(environ["SM_OUTPUT_INTERMEDIATE_DIR"])
            if in_sagemaker and "SM_OUTPUT_INTERMEDIATE_DIR" in environ
            else None,
        )


# Data channels: ``fit({"policy": "s3://..."})`` makes a folder on each instance


def channel_names(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The channels of this job; a preflight names them too, before there are folders."""
    found: list[str] = json.loads(environ.get("SM_CHANNELS") or "[]")
    return [name for name in found if name not in _SDK_CHANNELS]


def check_channels(read: Collection[str], environ: Mapping[str, str] = os.environ) -> None:
    """Refuse channels that are not ``read``: they were given to be used.

    Raises:
        HyperparameterError: naming the first that is not read.
    """
    for name in channel_names(environ):
        if name not in read:
            known = f"it reads {', '.join(read)}" if read else "it reads none"
            raise HyperparameterError(
                f"the script does not read the data channel {name!r}; {known}: rename it or leave "
                "it out of fit()"
            )


def channel_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the data of channel ``name`` are; None where there is no such channel, or none yet.

    What is packed (``model.tar.gz``) is unpacked beside itself into a folder (``model``).

    Raises:
        HyperparameterError: there is nothing in it, or what is packed is damaged.
    """
    where = environ.get(f"SM_CHANNEL_{name.upper()}")
    if where is None:
        return None
    path = Path(where)
    if not path.is_dir() or not any(path.iterdir()):
        raise HyperparameterError(f"the data channel {name!r} is empty; look at its address in S3")
    for packed in path.glob(f"*{_ARCHIVE_SUFFIX}"):
        target = path / packed.name.removesuffix(_ARCHIVE_SUFFIX)
        try:
            with tarfile.open(packed) as archive:
                archive.extractall(target, filter="data")
        except (OSError, tarfile.TarError, EOFError) as error:
            raise HyperparameterError(
                f"the data channel {name!r}: cannot unpack {packed.name}: {error}"
            ) from error
    return path


# Instances


def vcpus(instance_type: str) -> int | None:
    """Its vCPUs, as nearly all types count them; None where the name does not say.

    >>> vcpus("ml.c5.2xlarge"), vcpus("ml.m5.large"), vcpus("local")
    (8, 2, None)
    """
    match = re.fullmatch(r"ml\.[\w-]+\.(\d*)(medium|large|xlarge)", instance_type)
    if match is None:
        return None
    return int(match[1] or 1) * _VCPUS_BY_SIZE[match[2]]


def gpus(instance_type: str) -> int:
    """Its GPUs of NVIDIA's, which the families g and p have.

    >>> gpus("ml.g5.2xlarge"), gpus("ml.p4d.24xlarge"), gpus("ml.c5.xlarge")
    (1, 8, 0)
    """
    match = re.match(r"ml\.([gp])(\d)\w*\.(\d*)", instance_type)
    if match is None:
        return 0
    family, generation, size = match.groups()
    return _GPUS_BY_FAMILY.get(family + generation, _GPUS_BY_FAMILY["g"]).get(int(size or 1), 1)


def instance_groups(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of this job as ``SM_RESOURCE_CONFIG`` has them, of equal instances one.

    Each has an ``instance_type`` and ``hosts``. None outside of a job.
    """
    resources = json.loads(environ.get("SM_RESOURCE_CONFIG") or "{}")
    groups: list[dict[str, Any]] = resources.get("instance_groups") or []
    return [group for group in groups if {"instance_type", "hosts"} <= group.keys()]


# The log


def log_line(text: str) -> None:
    """One line on stdout, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def metric_line(numbers: Mapping[str, float]) -> str:
    """The log's line for one iteration; a number that does not exist yet is left out.

    >>> metric_line({"training_iteration": 2, "loss": float("nan"), "env_steps": 2e6})
    'training_iteration=2 env_steps=2000000'
    >>> metric_line({"training_iteration": 2, "episode_reward_mean": -1.5})
    'training_iteration=2 episode_reward_mean=-1.5 (episode_reward_mean: -1.5)'
    """
    shown = {
        name: numbers[name] for name in LOGGED_METRICS if math.isfinite(numbers.get(name, math.nan))
    }
    words = [f"{name}={value:.8g}" for name, value in shown.items()]
    words += [f"({name}: {shown[name]:.8g})" for name in _RLLIB_STYLE_METRICS if name in shown]
    return " ".join(words)


# Failure


def disk_is_full(error: BaseException | None) -> bool:
    """Whether ``error``, or what it came from, is that there was no room to write."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
            return True
        error = error.__cause__ or error.__context__
    return False


def report_failure(
    reason: str, environ: Mapping[str, str] = os.environ, prog: str | None = None
) -> None:
    """Report ``reason`` (behind the name of the command, ``prog``); the first stays in the file."""
    sys.stderr.write(f"{prog}: {reason}\n" if prog else f"{reason}\n")
    sys.stderr.flush()
    if "SM_MODEL_DIR" not in environ:
        return
    path = base_folder(environ) / FAILURE_FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(reason)
