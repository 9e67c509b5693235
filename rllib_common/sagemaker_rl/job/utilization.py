"""What of a job's machines would work, and for what share: what idles is paid for too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import gpus, instance_groups, vcpus


@dataclass(frozen=True, slots=True)
class Utilization:
    """What a training keeps busy where there is enough of it; what is left idles."""

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Equal instances of a job, with the vCPUs and GPUs of each."""

    instance_type: str
    instances: int
    cpus: int
    gpus: int


def instance_capacities(environ: Mapping[str, str]) -> list[InstanceGroup]:
    """Those of this job, the ones with GPUs first; none where a type's name shows no vCPUs."""
    named = [(one["instance_type"], len(one["hosts"])) for one in instance_groups(environ)]
    counted = [InstanceGroup(kind, count, vcpus(kind) or 0, gpus(kind)) for kind, count in named]
    if not all(group.cpus for group in counted):
        return []
    return sorted(counted, key=lambda group: not group.gpus)


def utilization_report(
    groups: list[InstanceGroup], use: Utilization, allowed: bool, runners_named: bool = False
) -> list[str]:
    """A line for each group: what of it would work.

    Raises:
        HyperparameterError: more than half of a group's GPUs or instances would idle, and that is
            not ``allowed``; for instances the number of runners may have been named instead.
    """
    cpus, learning = use.cpus, use.gpus
    lines, idle = [], []
    for group in groups:
        all_cpus, all_gpus = group.instances * group.cpus, group.instances * group.gpus
        work, learn = min(cpus, all_cpus), min(learning, all_gpus)
        cpus, learning = cpus - work, learning - learn
        enough = math.ceil(max(work / group.cpus, learn / max(group.gpus, 1)))
        line = f"{group.instance_type}: {work:.1f} of {all_cpus} vCPUs would work ({work / all_cpus:.0%})"
        if group.gpus:
            line += f", {learn:g} of {all_gpus} GPUs ({learn / all_gpus:.0%})"
        if group.instances > 1:
            line += f"; {enough} of {group.instances} instances would do"
        lines.append(line)
        if (2 * enough < group.instances and not runners_named) or 2 * learn < all_gpus:
            idle.append(line)
    if idle and not allowed:
        raise HyperparameterError(
            f"more than half of what is paid for would idle: {' | '.join(idle)}; take fewer or "
            "smaller instances, or allow it with allow_idle_instances"
        )
    return lines
