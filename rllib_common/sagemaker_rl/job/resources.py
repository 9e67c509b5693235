"""Checks that a machine has the CPUs, GPUs and memory that a configuration needs.

Without these checks, Ray would wait forever for missing CPUs or GPUs. A replay buffer would fill
the memory after hours of training.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from sagemaker_rl.job.hyperparameters import HyperparameterError

_CGROUP_MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Files with the memory limit and the memory usage of a container.

The files belong to cgroup v2 and to cgroup v1.
"""

_PROCESS_BYTES = 500 * 2**20
"""Memory of a training process without its buffers, in bytes.

torch and RLlib use most of this memory.
"""


@dataclass(frozen=True, slots=True)
class BufferSize:
    """Memory of a buffer that grows during training.

    Attributes:
        setting: Name of the algorithm's setting that determines the size.
        value: Value of the setting.
        full_bytes: Size of the full buffer, in bytes.
    """

    setting: str
    value: int
    full_bytes: int


def check_memory(config: AlgorithmConfig, cgroup_root: Path = Path("/sys/fs/cgroup")) -> str:
    """Check that the algorithm's buffer fits into this machine's memory.

    Args:
        config: RLlib's configuration. If the configuration has a method ``full_buffer``, the method
            returns the `BufferSize`.
        cgroup_root: Root of the cgroup file systems.

    Returns:
        A warning if the full buffer needs more than the free memory, or "".

    Raises:
        HyperparameterError: If the full buffer needs more than this machine's total memory.
    """
    if not hasattr(config, "full_buffer"):
        return ""
    buffer: BufferSize = config.full_buffer()
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    for limit, usage in _CGROUP_MEMORY_FILES:
        with suppress(OSError, ValueError):  # The file contains "max" for no limit.
            bound = int((cgroup_root / limit).read_text())
            total = min(total, bound)
            free = min(free, bound - int((cgroup_root / usage).read_text()))
    free -= _PROCESS_BYTES * (1 + config.num_env_runners)
    needs = (
        f"{buffer.setting} is {buffer.value}, and the full buffer needs "
        f"{_format_gib(buffer.full_bytes)}, but this machine has {_format_gib(total)} of memory"
    )
    fitting = max(int(buffer.value * free / buffer.full_bytes), 1)
    if buffer.full_bytes > total:
        raise HyperparameterError(f"{needs}; use at most {fitting}")
    if buffer.full_bytes > free:
        return (
            f"warning: {needs}, of which {_format_gib(max(free, 0))} are free for the buffer; "
            f"training may run out of memory when the buffer fills up; use at most {fitting}"
        )
    return ""


def _format_gib(number: float) -> str:
    """Format a number of bytes in GiB."""
    return f"{number / 2**30:.1f} GiB"


def check_cpus(config: AlgorithmConfig, cpus: int) -> None:
    """Reject a configuration that needs more than ``cpus`` CPUs.

    Raises:
        HyperparameterError: If there are too few CPUs for the env runners and learners.
    """
    most, others = max_env_runners(config, cpus), _num_reserved_cpus(config)
    if others > cpus:
        raise HyperparameterError(
            f"num_learners {config.num_learners} and evaluation_num_env_runners "
            f"{config.evaluation_num_env_runners or 0} need {others:g} CPUs, but there are {cpus}; "
            "lower one of them, or the CPUs per learner or env runner"
        )
    if not 0 <= config.num_env_runners <= most:
        also = f", learners and evaluation use {others:g}" if others else ""
        raise HyperparameterError(
            f"num_env_runners must be between 0 and {most}, got {config.num_env_runners}: there "
            f"are {cpus} CPUs, and the driver uses 1{also} (with 0 env runners, the driver samples)"
        )


def max_env_runners(config: AlgorithmConfig, cpus: int) -> int:
    """Return the maximum number of env runners on ``cpus`` CPUs.

    One CPU is reserved for the driver.
    """
    # On a single CPU, one env runner may share the CPU with the driver.
    left = max(cpus - 1, 1) - _num_reserved_cpus(config)
    return max(int(left / (config.num_cpus_per_env_runner or 1)), 0)


def _num_reserved_cpus(config: AlgorithmConfig) -> float:
    """Return the number of CPUs that the learners and the evaluation occupy."""
    per_learner = config.num_cpus_per_learner
    if per_learner == "auto":  # RLlib reserves no CPU for a learner with a GPU.
        per_learner = int(config.num_gpus_per_learner == 0)
    evaluation = config.num_cpus_per_env_runner * (config.evaluation_num_env_runners or 0)
    reserved: float = config.num_learners * per_learner + evaluation
    return reserved


def check_cuda_driver() -> None:
    """Reject an instance whose GPUs torch cannot use.

    If torch cannot use the GPUs, training uses only the CPUs.

    Raises:
        HyperparameterError: If torch can use fewer GPUs than SageMaker's ``SM_NUM_GPUS``.
    """
    paid = int(os.environ.get("SM_NUM_GPUS") or 0)
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable >= paid:
        return
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    raise HyperparameterError(
        f"this instance has {paid} GPUs, of which torch {torch.__version__} (built for {built}) "
        f"can use {usable}: its driver is too old, or torch is built for CPUs; use the image built "
        "with REQUIREMENTS=requirements-cuda12.txt (docs/how-to/create-aws-stacks.md), or an "
        "instance without GPUs"
    )


def _check_gpus(config: AlgorithmConfig, gpus: int) -> None:
    """Reject a configuration that needs more than ``gpus`` GPUs.

    Raises:
        HyperparameterError: If there are too few GPUs.
    """
    learners, runners = max(config.num_learners, 1), config.num_env_runners
    for_learners = learners * config.num_gpus_per_learner
    together = for_learners + runners * config.num_gpus_per_env_runner
    # If there are no learner processes, the driver runs the learner.
    in_driver = for_learners if config.num_learners == 0 else 0
    for wanted, there, place in (
        (in_driver, torch.cuda.device_count(), "on the driver's instance"),
        (together, gpus, "in total"),
    ):
        if wanted > there:
            raise HyperparameterError(
                f"{wanted:g} GPUs are needed {place}, but there are {there}: {learners} * "
                f"num_gpus_per_learner {config.num_gpus_per_learner:g} + {runners} * "
                f"num_gpus_per_env_runner {config.num_gpus_per_env_runner:g}; lower one, or use "
                "instances with GPUs"
            )
    requests = [config.num_gpus_per_env_runner] * runners
    requests += [config.num_gpus_per_learner] * learners
    if (needed := _num_whole_gpus(requests)) > gpus:
        raise HyperparameterError(
            f"{needed} GPUs are needed, but there are {gpus}: a process cannot use parts of two "
            f"GPUs, so {config.num_gpus_per_env_runner:g} per env runner (num_gpus_per_env_runner, "
            f"{runners} env runners) and {config.num_gpus_per_learner:g} per learner "
            f"(num_gpus_per_learner, {learners} learners) do not fit on fewer; lower one of these "
            "settings"
        )


def check_cluster(
    config: AlgorithmConfig, cpus: int, gpus: int, available: Mapping[str, float]
) -> None:
    """Reject a configuration that needs more than a cluster has, or this machine.

    Args:
        config: RLlib's configuration.
        cpus: Number of CPUs.
        gpus: Number of GPUs.
        available: Amounts of Ray's custom resources, keyed by name.

    Raises:
        HyperparameterError: If there is too little of a resource. Ray would wait for it forever.
    """
    check_cpus(config, cpus)
    _check_gpus(config, gpus)
    for group in ("per_env_runner", "per_learner", "for_main_process"):
        field = f"custom_resources_{group}"
        for name, wanted in getattr(config, field).items():
            if wanted > (there := available.get(name, 0)):
                raise HyperparameterError(
                    f"{field} needs {wanted:g} of the resource {name!r}, but Ray has {there:g}; "
                    "omit it"
                )


def _num_whole_gpus(requests: Iterable[float]) -> int:
    """Return the number of GPUs that the requests of all processes occupy.

    Each request is a number of whole GPUs or a fraction of one GPU.

    >>> _num_whole_gpus([0.6, 0.6, 0.4, 0.4]), _num_whole_gpus([0.6, 0.6, 0.6])
    (2, 3)
    >>> _num_whole_gpus([2, 0.1])
    3
    """
    used: list[float] = []
    whole = 0
    for part in sorted(requests, reverse=True):
        if part >= 1:
            whole += math.ceil(part)
            continue
        place = next((i for i, sum_ in enumerate(used) if sum_ + part <= 1 + 1e-9), None)
        if place is None:
            used += [part] if part > 0 else []
        else:
            used[place] += part
    return whole + len(used)
