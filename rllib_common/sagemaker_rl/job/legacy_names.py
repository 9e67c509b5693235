"""Translation of former hyperparameters, such as those of the starter kits, to current names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, LEGACY_RLLIB_NAMES, HyperparameterError

COMMON_RENAMED = {
    "rl.training.run": "algorithm",
    "rl.training.stop.training_iteration": "num_iters",
    "rl.training.stop.timesteps_total": "env_steps",
    **{CONFIG_PREFIX + old: CONFIG_PREFIX + new for old, new in LEGACY_RLLIB_NAMES.items()},
    CONFIG_PREFIX + "num_workers": "num_env_runners",
    CONFIG_PREFIX + "num_cpus": "num_env_runners",
    CONFIG_PREFIX + "seed": "seed",
}
"""Current names of hyperparameters of both starter kits, keyed by former names."""


@dataclass(frozen=True)
class LegacyNames:
    """Former hyperparameters of one starter kit."""

    renamed: Mapping[str, str]
    """Current names, keyed by former names."""
    unsupported: Mapping[str, str] = field(default_factory=dict)
    """Alternatives to the hyperparameters that are rejected, keyed by former names."""
    without_effect: Mapping[str, tuple[tuple[Any, ...], str]] = field(default_factory=dict)
    """Values that are left out, and the reason, keyed by former names.

    Other values are rejected. If there are no values, all values are left out.
    """
    convert: Callable[[str, Any], Any] = lambda name, value: value
    """Function from a former name and its value to the current value."""

    def translate(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Translate former hyperparameters to current ones.

        Args:
            given: Hyperparameters by current or former name.

        Returns:
            Hyperparameters by current name, and a message for each change.

        Raises:
            HyperparameterError: If a name has no equivalent, or a value is set under two names.
        """
        values: dict[str, Any] = {}
        messages: list[str] = []
        for name, value in given.items():
            if name in self.unsupported:
                raise HyperparameterError(f"{name} has no equivalent; {self.unsupported[name]}")
            if name in self.without_effect:
                accepted, reason = self.without_effect[name]
                if accepted and value not in accepted:
                    raise HyperparameterError(f"{name} cannot be {value!r}: {reason}; leave it out")
                messages.append(f"{name} {value} is left out: {reason}")
                continue
            current = self.renamed.get(name, name)
            if current in values or (current != name and current in given):
                raise HyperparameterError(
                    f"{name} and {current} set the same value; set only one name"
                )
            values[current] = _drop_driver_cpu(name, self.convert(name, value))
            if current != name:
                messages.append(f"{name} is now called {current}: {values[current]}")
        return values, messages


def _drop_driver_cpu(name: str, value: Any) -> Any:
    """Return the number of env runners for the starter kits' number of CPUs.

    In the starter kits, the driver used one of the CPUs. Other values are returned unchanged.

    Raises:
        HyperparameterError: If the number of CPUs is invalid.
    """
    if name != CONFIG_PREFIX + "num_cpus":
        return value
    if not isinstance(value, int) or value < 1:
        raise HyperparameterError(f"{name} must be a positive number of CPUs, got {value!r}")
    return value - 1
