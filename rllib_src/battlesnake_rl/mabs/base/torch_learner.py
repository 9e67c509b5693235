"""Optimizer and metrics shared by all learners."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import DEFAULT_OPTIMIZER
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    MODULE_TRAIN_BATCH_SIZE_MEAN,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    WEIGHTS_SEQ_NO,
)
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from sagemaker_rl.job.process_environment import limit_torch_threads


def copy_to_cpu_async(tensor: Tensor) -> Callable[[], NDArray[Any]]:
    """Start copying ``tensor`` to the CPU.

    Returns:
        A function that waits for the end of the copy and returns the array. The function does not
        wait for GPU work that starts later.
    """
    copy = tensor.to("cpu", non_blocking=True)
    if tensor.device.type != "cuda":
        return copy.numpy
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait_for_copy() -> NDArray[Any]:
        """Wait for the end of the copy, and return the array."""
        copied.synchronize()
        return copy.numpy()

    return wait_for_copy


def is_run_schedule(schedule: Any) -> bool:
    """Return whether a schedule counts the completed fraction of the run.

    The last point of such a schedule is at 1. All other schedules count env steps.
    """
    return isinstance(schedule, list | tuple) and schedule[-1][0] == 1


def schedule_value(
    schedule: float | Sequence[Sequence[float]], env_steps: int, run_progress: float
) -> float:
    """Return the current value of a schedule, with linear interpolation.

    Args:
        schedule: A number, or points (position, value). The unit of the positions is an env step,
            or the whole run if the last position is 1.
        env_steps: Number of env steps sampled.
        run_progress: Completed fraction of the run, in [0, 1].

    >>> schedule_value([[0, 0.4], [1, 0.2]], 7000, 0.5)
    0.3
    >>> schedule_value([[0, 0.4], [10_000, 0.2]], 2500, 0.5)
    0.35
    """
    if isinstance(schedule, int | float):
        return schedule
    positions, values = zip(*schedule, strict=True)
    position = run_progress if is_run_schedule(schedule) else env_steps
    return float(np.interp(position, positions, values).round(12))


class FastTorchLearnerMixin:
    """Mixin for torch learners with one module.

    In the list of base classes, the mixin must precede RLlib's learner class. The mixin replaces
    the optimizer. The mixin also defers the metrics to `report`, because logging the metrics of
    every update took 3% of the update's time.
    """

    def build(self: Any) -> None:
        """Build the module and the optimizer."""
        limit_torch_threads()
        super().build()  # type: ignore[misc]
        self.run_progress = 0.0
        self._norms: list[Tensor] = []
        self._random = np.random.default_rng(self.config.seed)

    def configure_optimizers_for_module(
        self: Any, module_id: str, config: AlgorithmConfig | None = None
    ) -> None:
        """Register an Adam optimizer that updates all weights in one fused call."""
        parameters = self.get_parameters(self.module[module_id])
        lr = (config or self.config).lr
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(
                parameters,
                schedule_value(lr, 0, 0.0),
                eps=(config or self.config).adam_epsilon,
                fused=True,
            ),
            params=parameters,
            # RLlib's schedules only know env steps; `set_run_progress` follows the run.
            lr_or_lr_schedule=None if is_run_schedule(lr) else lr,
        )

    def set_run_progress(self: Any, fraction: float) -> None:
        """Set the completed fraction of the run, in [0, 1], for schedules that end with the run.

        The learning rate changes at once, if its schedule ends with the run.
        """
        self.run_progress = fraction
        if is_run_schedule(self.config.lr):
            for optimizer in self._named_optimizers.values():
                self._set_optimizer_lr(optimizer, schedule_value(self.config.lr, 0, fraction))

    def _to_device(self: Any, column: NDArray[Any]) -> Tensor:
        """Return an array as a tensor on the learner's device."""
        # Torch does not accept read-only arrays, such as arrays from Ray's object store.
        one = torch.from_numpy(column if column.flags.writeable else column.copy())
        if self.device.type == "cpu":
            return one
        # Torch copies memory asynchronously only if the memory is pinned.
        return one.pin_memory().to(self.device, non_blocking=True)

    def postprocess_gradients(self: Any, gradients_dict: dict[Any, Tensor]) -> dict[Any, Tensor]:
        """Clip gradients by their global norm.

        RLlib's method handles all other clipping modes.
        """
        if self.config.grad_clip_by != "global_norm":
            clipped: dict[Any, Tensor] = super().postprocess_gradients(  # type: ignore[misc]
                gradients_dict
            )
            return clipped
        gradients = [gradient for gradient in gradients_dict.values() if gradient is not None]
        norm = get_total_norm(gradients, foreach=True)
        most = self.config.grad_clip or math.inf
        # On a GPU, reading the norm would wait for the device, so gradients are always scaled.
        if norm.device.type != "cpu" or norm > most:
            clip_grads_with_norm_(self._params.values(), most, norm, foreach=True)
        self._norms.append(norm)
        return gradients_dict

    def _log_step_counts(self: Any, updates: int, trained: int) -> None:
        """Log the number of updates, and the number of trained rows in all updates."""
        log = self.metrics.log_value
        log((DEFAULT_MODULE_ID, WEIGHTS_SEQ_NO), self._weights_seq_no, window=1)
        log((DEFAULT_MODULE_ID, MODULE_TRAIN_BATCH_SIZE_MEAN), trained / updates, reduce="mean")
        log((DEFAULT_MODULE_ID, NUM_MODULE_STEPS_TRAINED), trained, reduce="sum")
        for key in (
            (DEFAULT_MODULE_ID, NUM_MODULE_STEPS_TRAINED_LIFETIME),
            (ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME),
            (ALL_MODULES, NUM_ENV_STEPS_TRAINED_LIFETIME),
        ):
            log(key, trained, reduce="lifetime_sum", with_throughput=True)
        for key in (NUM_MODULE_STEPS_TRAINED, NUM_ENV_STEPS_TRAINED):
            log((ALL_MODULES, key), trained, reduce="sum", with_throughput=True)

    def _log_gradient_norm(self: Any) -> None:
        """Log the mean global gradient norm of the updates since the last call."""
        if self._norms:
            name = f"gradients_{DEFAULT_OPTIMIZER}_global_norm"
            norm = torch.stack(self._norms).mean()
            self.metrics.log_value((DEFAULT_MODULE_ID, name), norm, window=1)
            self._norms.clear()
