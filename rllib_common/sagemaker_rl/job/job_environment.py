"""Environment of a training job: directories, channels, instances and log lines.

In a job, all files are under SageMaker's ``/opt/ml``. Outside a job, all files are in one run
directory.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker_rl.job.hyperparameters import HyperparameterError

PRIMARY_JOB = "primary"
"""Role of the job whose first instance is the head node."""
SECONDARY_JOB = "secondary"
"""Role of the job that provides only env runners."""

HOMOGENEOUS_GROUP = "homogeneousCluster"
"""Name of the only instance group of a job with equal instances."""

_SDK_CHANNELS = ("code", "sm_drivers")
"""Channels through which `ModelTrainer` (SDK 3) passes source files and scripts."""

_ARCHIVE_SUFFIX = ".tar.gz"
"""File name suffix of model artifacts.

SageMaker does not unpack these files in a channel.
"""

_VCPUS_BY_SIZE = {"medium": 2, "large": 2, "xlarge": 4}
"""Number of vCPUs, keyed by the size in an instance type.

A multiple such as ``8xlarge`` has eight times the vCPUs of ``xlarge``.
"""

_GPUS_BY_FAMILY = {
    "g": {12: 4, 24: 4, 48: 8},
    "g7": {12: 2, 24: 4, 48: 8},
    "p2": {8: 8, 16: 16},
    "p3": {8: 4, 16: 8, 24: 8},
    "p4": {24: 8},
    "p5": {48: 8},
    "p6": {36: 4, 48: 8},
}
"""Number of GPUs per instance, keyed by family and size of the instance type.

The dictionary contains only instance types with more than one GPU.
"""

_MIN_GPU_CAPABILITY = 7.5
_OLD_GPU_CAPABILITIES = {"p2": 3.7, "g3": 5.2, "p3": 7.0}
"""Minimum compute capability of the training image's torch, and the families below the minimum.

Source of the minimum: PyTorch's RELEASE.md, binaries of 2.11 and later for CUDA 13.
"""

LOGGED_METRICS = (
    "training_iteration", "time_total_s", "env_steps", "agent_steps", "num_episodes",
    "episode_reward_mean", "episode_reward_min", "episode_reward_max",
    "episode_len_mean", "episode_len_min", "episode_len_max",
    "Snake_hit_wall", "Snake_hit_body", "Snake_was_eaten", "Killed_another_snake", "Starved",
    "Forbidden_move", "Longest_snake", "transitions_trained", "loss", "qf_mean",
    "env_steps_per_s", "transitions_per_s", "cpu_percent", "cpu_minutes", "driver_cpu_minutes",
    "ladder_cpu_fraction", "elo", "elo_low", "elo_high", "elo_best", "ladder_score",
)  # fmt: skip
"""Metrics in the log line of an iteration; SageMaker accepts at most 40 metrics."""

METRIC_DEFINITIONS = [
    {"Name": name, "Regex": rf"\b{name}=(-?[0-9.]+(?:e[+-]?[0-9]+)?)"} for name in LOGGED_METRICS
]
"""``metric_definitions`` of an estimator: CloudWatch's patterns for log lines.

>>> import re
>>> re.findall(METRIC_DEFINITIONS[0]["Regex"], "training_iteration=2 episode_reward_mean=-1.5")
['2']
"""

_RLLIB_STYLE_METRICS = ("episode_reward_mean", "episode_reward_max")
"""Metrics that the log line repeats in RLlib's former format.

``RLEstimator`` parses this format with ``default_metric_definitions(RLToolkit.RAY)``. Published
examples use these definitions.
"""

CHECKPOINT_DIR = "/opt/ml/checkpoints"
"""Directory of a job's checkpoints, which SageMaker copies to ``checkpoint_s3_uri``."""

FAILURE_FILE = Path("output") / "failure"
"""Path of the failure reason's file, relative to ``/opt/ml``.

SageMaker shows the first 1,024 characters as ``FailureReason``.
"""


def _base_folder() -> Path:
    """Return SageMaker's directory ``/opt/ml``.

    In a simulated job, the function returns the equivalent directory.
    """
    return Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Directories of one training job; a directory may not exist yet."""

    name: str
    output_dir: Path
    """Directory of the curves: ``progress.csv`` and TensorBoard files."""
    checkpoint_dir: Path
    """Directory of the checkpoints."""
    model_dir: Path
    """Directory of the model artifacts, such as the exported policy."""
    in_sagemaker: bool
    intermediate_dir: Path | None = None
    """Directory that SageMaker uploads to S3 while the job runs, or None."""

    @classmethod
    def from_environment(cls, name: str, runs: Path) -> JobPaths:
        """Create the paths of SageMaker's directories, or of ``runs/NAME`` outside a job."""
        run, base, environ = runs / name, _base_folder(), os.environ
        name = environ.get("TRAINING_JOB_NAME", name)
        if "SM_MODEL_DIR" not in environ:
            return cls(name, run, run / "checkpoints", run / "model", in_sagemaker=False)
        intermediate = environ.get("SM_OUTPUT_INTERMEDIATE_DIR")
        return cls(
            name,
            output_dir=Path(environ.get("SM_OUTPUT_DATA_DIR", base / "output" / "data")),
            checkpoint_dir=base / "checkpoints",
            model_dir=Path(environ["SM_MODEL_DIR"]),
            in_sagemaker=True,
            intermediate_dir=None if intermediate is None else Path(intermediate),
        )


def channel_names() -> list[str]:
    """Return the names of this job's data channels.

    In a preflight check, the channels have no directories yet.
    """
    found: list[str] = json.loads(os.environ.get("SM_CHANNELS") or "[]")
    return [name for name in found if name not in _SDK_CHANNELS]


def check_channels(script_channels: Collection[str]) -> None:
    """Reject data channels that are not among the ``script_channels``.

    Raises:
        HyperparameterError: If the job has an unread channel; the message names the first unread
            channel.
    """
    for name in channel_names():
        if name not in script_channels:
            known = ", ".join(script_channels) or "no channels"
            raise HyperparameterError(
                f"the script does not read the data channel {name!r}; it reads {known}: rename the "
                "channel or omit it from fit()"
            )


def channel_folder(name: str) -> Path | None:
    """Return the directory of a data channel, or None for a missing channel.

    The function unpacks each archive (``model.tar.gz``) into a directory next to the archive
    (``model``).

    Raises:
        HyperparameterError: If the channel is empty or an archive is damaged.
    """
    where = os.environ.get(f"SM_CHANNEL_{name.upper()}")
    if where is None:
        return None
    path = Path(where)
    if not path.is_dir() or not any(path.iterdir()):
        raise HyperparameterError(f"the data channel {name!r} is empty; check its S3 URI")
    for packed in path.glob(f"*{_ARCHIVE_SUFFIX}"):
        target = path / packed.name.removesuffix(_ARCHIVE_SUFFIX)
        try:
            shutil.unpack_archive(packed, target, filter="data")
        except (OSError, tarfile.TarError, EOFError) as error:
            raise HyperparameterError(
                f"the data channel {name!r}: cannot unpack {packed.name}: {error}"
            ) from error
    return path


def num_instance_vcpus(instance_type: str) -> int | None:
    """Return the number of vCPUs of an instance type, or None if unknown.

    The size in the name determines the number, which is correct for nearly all instance types.

    >>> num_instance_vcpus("ml.c5.2xlarge"), num_instance_vcpus("ml.m5.large")
    (8, 2)
    >>> num_instance_vcpus("local") is None
    True
    """
    match = re.fullmatch(r"ml\.[\w-]+\.(\d*)(medium|large|xlarge)", instance_type)
    if match is None:
        return None
    return int(match[1] or 1) * _VCPUS_BY_SIZE[match[2]]


def num_instance_gpus(instance_type: str) -> int:
    """Return the number of NVIDIA GPUs of an instance type.

    Only instance types of the families g and p have GPUs.

    >>> num_instance_gpus("ml.g7e.12xlarge"), num_instance_gpus("ml.p6-b200.48xlarge")
    (2, 8)
    >>> num_instance_gpus("ml.c5.xlarge")
    0
    """
    match = re.match(r"ml\.([gp])(\d)[\w-]*\.(\d*)", instance_type)
    if match is None:
        return 0
    family, generation, size = match.groups()
    return _GPUS_BY_FAMILY.get(family + generation, _GPUS_BY_FAMILY["g"]).get(int(size or 1), 1)


def check_instance_gpus(instance_type: str) -> None:
    """Reject an instance type whose GPUs torch does not support.

    Raises:
        HyperparameterError: If torch has no kernels for the GPUs.
    """
    family = re.match(r"ml\.([gp]\d)", instance_type)
    if family and (capability := _OLD_GPU_CAPABILITIES.get(family[1])):
        raise HyperparameterError(
            f"torch has no kernels for the GPUs of {instance_type} (compute capability "
            f"{capability}, but at least {_MIN_GPU_CAPABILITY} is needed); use ml.g4dn, the "
            "nearest family that works"
        )


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Group of equal instances of a job."""

    instance_type: str
    hosts: Sequence[str]

    @property
    def cpus(self) -> int:
        """Number of vCPUs per instance, or 0 if unknown."""
        return num_instance_vcpus(self.instance_type) or 0

    @property
    def gpus(self) -> int:
        """Number of GPUs per instance."""
        return num_instance_gpus(self.instance_type)


def instance_groups() -> list[InstanceGroup]:
    """Return the instance groups of this job from ``SM_RESOURCE_CONFIG``.

    The list is empty outside a job. A job with equal instances has one group.
    """
    resources = json.loads(os.environ.get("SM_RESOURCE_CONFIG") or "{}")
    return [
        InstanceGroup(group["instance_type"], group["hosts"])
        for group in resources.get("instance_groups") or []
        if {"instance_type", "hosts"} <= group.keys()
    ]


def assign_hosts(groups: Iterable[tuple[str, str, int]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the host names of a job, and its instance groups as in ``SM_RESOURCE_CONFIG``.

    Args:
        groups: Name, instance type and number of instances of each group.
    """
    hosts: list[str] = []
    described = []
    for name, instance_type, count in groups:
        own = [f"algo-{len(hosts) + i + 1}" for i in range(count)]
        hosts += own
        group = {"instance_group_name": name, "instance_type": instance_type, "hosts": own}
        described.append(group)
    return hosts, described


def log_line(text: str) -> None:
    """Write a line to stdout and flush stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def metric_line(numbers: Mapping[str, float]) -> str:
    """Return the log line with the metrics of one iteration.

    The line omits NaN and infinite metrics.

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


def report_failure(reason: str, prog: str | None = None) -> None:
    """Write the reason for a failure to stderr and to the job's failure file.

    The function does not overwrite an existing failure file.

    Args:
        reason: Reason of the failure, in one line.
        prog: Name of the command, which precedes the reason on stderr.
    """
    sys.stderr.write(f"{prog}: {reason}\n" if prog else f"{reason}\n")
    sys.stderr.flush()
    if "SM_MODEL_DIR" not in os.environ:
        return
    path = _base_folder() / FAILURE_FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(reason)
