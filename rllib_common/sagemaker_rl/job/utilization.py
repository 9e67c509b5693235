"""Expected utilization of a job's instances.

AWS bills idle instances at the same price as busy instances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import InstanceGroup


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """Default number of env runners, and the vCPUs and GPUs that a training run keeps busy."""

    num_env_runners: int
    cpus: float
    gpus: float

    def utilization_report(
        self,
        groups: Iterable[InstanceGroup],
        allow_idle: bool,
        num_env_runners_given: bool = False,
    ) -> list[str]:
        """Return a line for each instance group with its expected utilization.

        Args:
            groups: The instance groups; groups with GPUs come first.
            allow_idle: Whether idle instances are allowed.
            num_env_runners_given: Whether the user set the number of env runners. If True, idle
                instances are allowed, but idle GPUs are rejected.

        Raises:
            HyperparameterError: If more than half of a group's GPUs or instances would be idle.
        """
        cpus, learning = self.cpus, self.gpus
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
                f"more than half of the GPUs or instances would be idle: {' | '.join(idle)}; use "
                "fewer or smaller instances, or set allow_idle_instances"
            )
        return lines
