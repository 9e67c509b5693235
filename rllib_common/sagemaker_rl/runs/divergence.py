"""Detection of diverged training, and recovery of finite weights.

Training has diverged if weights or losses are NaN or infinite.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX

_SUSPECT_SETTINGS = (
    *("lr", "bootstrap_lr", "gamma", "lambda_", "grad_clip", "clip_param", "adam_epsilon"),
    *("vf_loss_coeff", "entropy_coeff", "kickstart_coeff", "reward_scale", "reward_clip"),
    *("tau", "td_error_loss_fn", "vf_clip_param", "kl_coeff", "use_kl_loss"),
)
"""RLlib settings that make training diverge if their values are wrong."""


class DivergedError(RuntimeError):
    """Error raised if weights or losses are no longer finite."""


def is_finite(module: Any) -> bool:
    """Return whether all weights of a torch module are finite.

    A module of another framework counts as finite.
    """
    if not isinstance(module, torch.nn.Module):
        return True
    return all(bool(torch.isfinite(weights).all()) for weights in module.state_dict().values())


class Learners:
    """Learners of an algorithm; an algorithm without RLlib's learners has none."""

    def __init__(self, algorithm: Any) -> None:
        self._group = getattr(algorithm, "learner_group", None)

    def call(self, function: Callable[[Any], Any]) -> list[Any]:
        """Return the results of ``function`` on all learners.

        RLlib would return the exception of a learner in another process as its result.
        """
        results = list(self._group.foreach_learner(function)) if self._group is not None else []
        for result in results:
            if not result.ok:
                raise result.get()
        return [result.get() for result in results]

    def check_weights(self) -> None:
        """Check that all weights are finite.

        An algorithm without RLlib's learners checks its own weights.

        Raises:
            DivergedError: If a weight is NaN or infinite.
        """
        if not all(self.call(lambda one: all(map(is_finite, one.module.values())))):
            raise DivergedError("the network has weights that are not finite")

    def copy_state(self) -> Any:
        """Return a copy of the weights and of the optimizer's state, or None without learners."""
        if self._group is None:
            return None
        names = [f"learner/{component}" for component in ("rl_module", "optimizer")]
        return copy.deepcopy(self._group.get_state(components=names))

    def restore_state(self, state: Any) -> None:
        """Restore the state that `copy_state` returned."""
        if self._group is not None:
            # RLlib's learners ignore weights that are older than their own weights.
            state["learner"].pop(WEIGHTS_SEQ_NO)
            self._group.set_state(state)


def find_likely_cause(config: AlgorithmConfig) -> str:
    """Return the name and value of the setting that probably made training diverge.

    The function selects the setting with the largest ratio to its default. If all suspect settings
    have their defaults, the function selects the learning rate.
    """
    values, defaults = config.to_dict(), type(config)().to_dict()

    def deviation(name: str) -> float:
        value, default = _magnitude(values[name]), _magnitude(defaults[name])
        return abs(math.log(value / default)) if value > 0 and default > 0 else 0.0

    name = max((name for name in _SUSPECT_SETTINGS if name in defaults), key=deviation)
    return f"{CONFIG_PREFIX}{name} {values[name]}"


def _magnitude(value: Any) -> float:
    """Return the largest absolute value of a number or a schedule.

    For other settings, the function returns 0.
    """
    if isinstance(value, list | tuple):
        return max((_magnitude(point[-1]) for point in value if point), default=0.0)
    return abs(float(value)) if isinstance(value, int | float) else 0.0
