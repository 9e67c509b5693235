"""Checks that the CPUs and GPUs of a configuration exist.

Without these checks, Ray would wait forever for missing CPUs or GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from sagemaker_rl.job.hyperparameters import HyperparameterError


def check_cpus(config: AlgorithmConfig, cpus: int) -> None:
    """Reject a configuration with more processes than ``cpus`` CPUs.

    Raises:
        HyperparameterError: If there are too few CPUs.
    """
    most, others = max_env_runners(config, cpus), _reserved_cpus(config)
    if not 0 <= config.num_env_runners <= most:
        also = f", learners and evaluation use {others}" if others else ""
        raise HyperparameterError(
            f"num_env_runners must be between 0 and {most}, got {config.num_env_runners}: "
            f"there are {cpus} CPUs, and the driver uses one{also} "
            "(with 0 env runners, the driver samples)"
        )


def max_env_runners(config: AlgorithmConfig, cpus: int) -> int:
    """Return the maximum number of env runners on ``cpus`` CPUs.

    The driver uses one of the CPUs.
    """
    # On a single CPU, one env runner may share the CPU with the driver.
    left = max(cpus - 1, 1) - _reserved_cpus(config)
    return max(int(left / (config.num_cpus_per_env_runner or 1)), 0)


def _reserved_cpus(config: AlgorithmConfig) -> int:
    """Return the number of CPUs of the learners and of evaluation."""
    learners: int = config.num_learners if config.num_gpus_per_learner == 0 else 0
    return learners + (config.evaluation_num_env_runners or 0)


def check_cuda_driver(environ: Mapping[str, str]) -> None:
    """Reject an instance with GPUs that torch cannot use.

    On such an instance, training would use only the CPUs.

    Raises:
        HyperparameterError: If torch can use fewer GPUs than SageMaker's ``SM_NUM_GPUS``.
    """
    paid = int(environ.get("SM_NUM_GPUS") or 0)
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable >= paid:
        return
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    raise HyperparameterError(
        f"this instance has {paid} GPUs, of which torch {torch.__version__} (built for {built}) "
        f"can use {usable}: its driver is too old, or torch is built for CPUs; use the image built "
        "with REQUIREMENTS=requirements-cuda12.txt (docs/aws.md), or an instance without GPUs"
    )


def check_gpus(config: AlgorithmConfig, gpus: int) -> None:
    """Reject a configuration that needs more than ``gpus`` GPUs.

    Raises:
        HyperparameterError: If there are too few GPUs.
    """
    learners, runners = max(config.num_learners, 1), config.num_env_runners
    for_learners = learners * config.num_gpus_per_learner
    together = for_learners + runners * config.num_gpus_per_env_runner
    # Without learner processes, the driver runs the learner.
    in_driver = for_learners if config.num_learners == 0 else 0
    for wanted, there, place in (
        (in_driver, torch.cuda.device_count(), "on the driver's instance"),
        (together, gpus, "in total"),
    ):
        if wanted > there:
            raise HyperparameterError(
                f"{wanted:g} GPUs are needed {place} and there are {there}: num_gpus_per_learner "
                f"{config.num_gpus_per_learner:g} for {learners} learners, num_gpus_per_env_runner "
                f"{config.num_gpus_per_env_runner:g} for {runners} env runners; lower one of "
                "them, or use instances with GPUs"
            )
    requests = [config.num_gpus_per_env_runner] * runners
    requests += [config.num_gpus_per_learner] * learners
    if (needed := _whole_gpus(requests)) > gpus:
        raise HyperparameterError(
            f"{needed} GPUs are needed and there are {gpus}: a process cannot use parts of "
            f"two GPUs, so {config.num_gpus_per_env_runner:g} per env runner "
            "(num_gpus_per_env_runner, "
            f"{runners} "
            f"env runners) and {config.num_gpus_per_learner:g} per learner (num_gpus_per_learner, "
            f"{learners} learners) do not fit on fewer; lower one of them"
        )


def _whole_gpus(requests: Iterable[float]) -> int:
    """Return the number of GPUs that the requests of all processes need.

    Each request is a number of whole GPUs or a fraction of one GPU.

    >>> _whole_gpus([0.6, 0.6, 0.4, 0.4]), _whole_gpus([0.6, 0.6, 0.6]), _whole_gpus([2, 0.1])
    (2, 3, 3)
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
