"""Whether the CPUs and GPUs that a configuration asks for exist: Ray would wait for ever."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from sagemaker_rl.job.hyperparameters import HyperparameterError


def check_cpus(config: AlgorithmConfig, cpus: int) -> None:
    """Refuse more processes than there are CPUs: Ray would wait for them for ever.

    Raises:
        HyperparameterError: there are not enough CPUs.
    """
    most, others = max_env_runners(config, cpus), _reserved_cpus(config)
    if not 0 <= config.num_env_runners <= most:
        also = f", {others} go to learners and evaluation" if others else ""
        raise HyperparameterError(
            f"num_env_runners must be between 0 and {most}, got {config.num_env_runners}: "
            f"there are {cpus} CPUs, and one is the driver's{also} "
            "(with 0 workers the driver plays the games itself)"
        )


def max_env_runners(config: AlgorithmConfig, cpus: int) -> int:
    """How many runners fit on this number of CPUs, one of which is the driver's."""
    # On a single CPU one runner may share it with the driver.
    left = max(cpus - 1, 1) - _reserved_cpus(config)
    return max(int(left / (config.num_cpus_per_env_runner or 1)), 0)


def _reserved_cpus(config: AlgorithmConfig) -> int:
    """CPUs that learners and evaluation take."""
    learners: int = config.num_learners if config.num_gpus_per_learner == 0 else 0
    return learners + (config.evaluation_num_env_runners or 0)


def check_cuda_driver(environ: Mapping[str, str]) -> None:
    """Refuse an instance of a job whose GPUs torch cannot use: CPUs would train at their price.

    Raises:
        HyperparameterError: there are GPUs (SageMaker counts them in ``SM_NUM_GPUS``) without use.
    """
    paid = int(environ.get("SM_NUM_GPUS") or 0)
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable >= paid:
        return
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    raise HyperparameterError(
        f"this instance has {paid} GPUs, of which torch {torch.__version__} (built for {built}) "
        f"can use {usable}: its driver is too old, or torch is one for CPUs; give the image built "
        "with REQUIREMENTS=requirements-cuda12.txt (docs/aws.md), or an instance without GPUs"
    )


def check_gpus(config: AlgorithmConfig, gpus: int) -> None:
    """Refuse more GPUs than there are: Ray would wait for them for ever.

    Raises:
        HyperparameterError: there are not enough GPUs.
    """
    learners, runners = max(config.num_learners, 1), config.num_env_runners
    for_learners = learners * config.num_gpus_per_learner
    together = for_learners + runners * config.num_gpus_per_env_runner
    # A learner without a process of its own learns in the driver's.
    in_driver = for_learners if config.num_learners == 0 else 0
    for wanted, there, place in (
        (in_driver, torch.cuda.device_count(), "in the driver's instance"),
        (together, gpus, "in all"),
    ):
        if wanted > there:
            raise HyperparameterError(
                f"{wanted:g} GPUs are wanted {place} and there are {there}: num_gpus_per_learner "
                f"{config.num_gpus_per_learner:g} for {learners} learners, num_gpus_per_env_runner "
                f"{config.num_gpus_per_env_runner:g} for {runners} runners; lower one of them, or "
                "take instances with GPUs"
            )
    requests = [config.num_gpus_per_env_runner] * runners
    requests += [config.num_gpus_per_learner] * learners
    if (needed := _whole_gpus(requests)) > gpus:
        raise HyperparameterError(
            f"{needed} GPUs are needed and there are {gpus}: no process gets parts of two, and "
            f"{config.num_gpus_per_env_runner:g} a runner (num_gpus_per_env_runner, {runners} "
            f"runners) and {config.num_gpus_per_learner:g} a learner (num_gpus_per_learner, "
            f"{learners} learners) do not fit into fewer; lower one of them"
        )


def _whole_gpus(requests: Iterable[float]) -> int:
    """How many GPUs it takes so that each process finds its part on one of them, or has whole ones.

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
