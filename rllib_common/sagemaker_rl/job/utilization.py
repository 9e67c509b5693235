"""Expected utilization of a job's instances.

AWS bills idle instances at the same price as busy instances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import InstanceGroup, check_instance_gpus, instance_groups


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """Default number of env runners, and the vCPUs and GPUs that a training run keeps busy."""

    num_env_runners: int
    cpus: float
    gpus: float


def load_instance_groups(environ: Mapping[str, str]) -> list[InstanceGroup]:
    """Return the instance groups of this job; groups with GPUs come first.

    If the number of vCPUs of an instance type is unknown, the list is empty.

    Raises:
        HyperparameterError: If torch does not support the GPUs of an instance type.
    """
    groups = instance_groups(environ)
    for group in groups:
        check_instance_gpus(group.instance_type)
    if not all(group.cpus for group in groups):
        return []
    return sorted(groups, key=lambda group: not group.gpus)


def utilization_report(
    groups: list[InstanceGroup],
    plan: ResourcePlan,
    allow_idle: bool,
    num_env_runners_given: bool = False,
) -> list[str]:
    """Return a line for each instance group with its expected utilization.

    Args:
        groups: The instance groups; groups with GPUs come first.
        plan: Number of vCPUs and GPUs that the training can keep busy.
        allow_idle: Whether idle instances are allowed.
        num_env_runners_given: Whether the user set the number of env runners. If True, idle
            instances are allowed, but idle GPUs are rejected.

    Raises:
        HyperparameterError: If more than half of a group's GPUs or instances would be idle.
    """
    cpus, learning = plan.cpus, plan.gpus
    lines, idle = [], []
    for group in groups:
        instances = len(group.hosts)
        all_cpus, all_gpus = instances * group.cpus, instances * group.gpus
        work, learn = min(cpus, all_cpus), min(learning, all_gpus)
        cpus, learning = cpus - work, learning - learn
        enough = math.ceil(max(work / group.cpus, learn / max(group.gpus, 1)))
        line = f"{group.instance_type}: {work:.1f} of {all_cpus} vCPUs would be busy "
        line += f"({work / all_cpus:.0%})"
        if group.gpus:
            line += f", {learn:g} of {all_gpus} GPUs ({learn / all_gpus:.0%})"
        if instances > 1:
            line += f"; {enough} of {instances} instances would be enough"
        lines.append(line)
        if (2 * enough < instances and not num_env_runners_given) or 2 * learn < all_gpus:
            idle.append(line)
    if idle and not allow_idle:
        raise HyperparameterError(
            f"more than half of the GPUs or instances would be idle: {' | '.join(idle)}; use fewer "
            "or smaller instances, or set allow_idle_instances"
        )
    return lines
