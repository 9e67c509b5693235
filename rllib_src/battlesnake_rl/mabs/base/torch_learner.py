"""Learner with one module, a fused optimizer and deferred metrics."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import DEFAULT_OPTIMIZER
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils import metrics as names
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from battlesnake_gym.mdp.observations import Observation
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy import symmetry_transforms
from battlesnake_rl.mabs.policy.q_network import WeightAveragingMixin
from sagemaker_rl.job.process_environment import limit_torch_threads


def _is_run_schedule(schedule: Any) -> bool:
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
    position = run_progress if _is_run_schedule(schedule) else env_steps
    return float(np.interp(position, positions, values).round(12))


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


class BatchedLearner(TorchLearner):  # type: ignore[misc]
    """Torch learner with one module.

    A subclass defines `compute_loss_for_module`, which also appends the metrics of the update to
    ``_pending_metrics``. `report` returns the means, because logging the metrics of every update
    took 3% of the update's time. In a list of base classes, this class must precede other learners.
    """

    metric_names: ClassVar[tuple[str, ...]] = ()
    """Names of the metrics in each tensor of ``_pending_metrics``."""
    per_move_columns: ClassVar[tuple[str, ...]] = ()
    """Names of the batch columns with one entry per move, which a symmetry reorders."""

    def build(self) -> None:
        """Build the module and the optimizer."""
        limit_torch_threads()
        super().build()
        self._pending_metrics: list[Any] = []
        self._num_rows_trained = 0
        self.run_progress = 0.0
        self._norms: list[Tensor] = []
        self._random = np.random.default_rng(self.config.seed)

    def configure_optimizers_for_module(
        self, module_id: str, config: AlgorithmConfig | None = None
    ) -> None:
        """Register an Adam optimizer that updates all weights in one fused call."""
        config = config or self.config
        parameters = self.get_parameters(self.module[module_id])
        lr = config.lr
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(
                parameters, schedule_value(lr, 0, 0.0), eps=config.adam_epsilon, fused=True
            ),
            params=parameters,
            # RLlib's schedules only know env steps; `set_run_progress` follows the run.
            lr_or_lr_schedule=None if _is_run_schedule(lr) else lr,
        )

    def set_run_progress(self, fraction: float) -> None:
        """Set the completed fraction of the run, in [0, 1], for schedules that end with the run.

        The learning rate changes at once, if its schedule ends with the run.
        """
        self.run_progress = fraction
        if _is_run_schedule(self.config.lr):
            for optimizer in self._named_optimizers.values():
                self._set_optimizer_lr(optimizer, schedule_value(self.config.lr, 0, fraction))

    @functools.cached_property
    def _observation(self) -> Observation:
        """Observation type of the games."""
        return env_options(self.config.env_config).observation_encoder

    def _train_on(self, batch: Mapping[str, NDArray[Any]]) -> None:
        """Run one update on a batch of arrays, under a random symmetry if configured."""
        if self.config.symmetry_augmentation:
            symmetry = int(self._random.integers(symmetry_transforms.NUM_SYMMETRIES))
            batch = symmetry_transforms.transform_batch(
                batch, symmetry, self.per_move_columns, self._observation
            )
        self._update_weights({name: self._to_device(column) for name, column in batch.items()})

    def _to_device(self, column: NDArray[Any]) -> Tensor:
        """Return an array as a tensor on the learner's device."""
        # Torch does not accept read-only arrays, such as arrays from Ray's object store.
        one = torch.from_numpy(column if column.flags.writeable else column.copy())
        if self.device.type == "cpu":
            return one
        # Torch copies memory asynchronously only if the memory is pinned.
        return one.pin_memory().to(self.device, non_blocking=True)

    def _update_weights(self, batch: dict[str, Tensor]) -> None:
        """Run one update: outputs, loss, gradients, and a step of the optimizer."""
        loss = self.compute_loss_for_module(
            module_id=DEFAULT_MODULE_ID,
            config=self.config,
            batch=batch,
            fwd_out=self._forward(batch),
        )
        gradients = self.compute_gradients({DEFAULT_MODULE_ID: loss})
        self.apply_gradients(self.postprocess_gradients(gradients))
        self._num_rows_trained += len(next(iter(batch.values())))

    def _forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of the module for a batch."""
        outputs = self.module.forward_train({DEFAULT_MODULE_ID: batch})
        result: dict[str, Tensor] = outputs[DEFAULT_MODULE_ID]
        return result

    def postprocess_gradients(self, gradients_dict: dict[Any, Tensor]) -> dict[Any, Tensor]:
        """Clip gradients by their global norm.

        RLlib's method handles all other clipping modes.
        """
        if self.config.grad_clip_by != "global_norm":
            clipped: dict[Any, Tensor] = super().postprocess_gradients(gradients_dict)
            return clipped
        gradients = [gradient for gradient in gradients_dict.values() if gradient is not None]
        norm = get_total_norm(gradients, foreach=True)
        most = self.config.grad_clip or math.inf
        # On a GPU, reading the norm would wait for the device, so gradients are always scaled.
        if norm.device.type != "cpu" or norm > most:
            clip_grads_with_norm_(self._params.values(), most, norm, foreach=True)
        self._norms.append(norm)
        return gradients_dict

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Advance RLlib's schedules, and update the weight average."""
        super().after_gradient_based_update(timesteps=timesteps)
        module = self.module[DEFAULT_MODULE_ID].unwrapped()
        if isinstance(module, WeightAveragingMixin):
            module.update_average()

    def report(self) -> Any:
        """Return step counts, and the mean metrics of all updates since the last report.

        At least one update must have run since the last report.
        """
        metrics, trained = self._mean_metrics(), self._num_rows_trained
        self.metrics.log_dict(metrics, key=DEFAULT_MODULE_ID, window=1)
        log = self.metrics.log_value
        if self._norms:
            name = f"gradients_{DEFAULT_OPTIMIZER}_global_norm"
            log((DEFAULT_MODULE_ID, name), torch.stack(self._norms).mean(), window=1)
        log((DEFAULT_MODULE_ID, names.WEIGHTS_SEQ_NO), self._weights_seq_no, window=1)
        mean_size = trained / len(self._pending_metrics)
        log((DEFAULT_MODULE_ID, names.MODULE_TRAIN_BATCH_SIZE_MEAN), mean_size, reduce="mean")
        log((DEFAULT_MODULE_ID, names.NUM_MODULE_STEPS_TRAINED), trained, reduce="sum")
        for key in (
            (DEFAULT_MODULE_ID, names.NUM_MODULE_STEPS_TRAINED_LIFETIME),
            (names.ALL_MODULES, names.NUM_MODULE_STEPS_TRAINED_LIFETIME),
            (names.ALL_MODULES, names.NUM_ENV_STEPS_TRAINED_LIFETIME),
        ):
            log(key, trained, reduce="lifetime_sum", with_throughput=True)
        for key in (names.NUM_MODULE_STEPS_TRAINED, names.NUM_ENV_STEPS_TRAINED):
            log((names.ALL_MODULES, key), trained, reduce="sum", with_throughput=True)
        self._pending_metrics.clear()
        self._norms.clear()
        self._num_rows_trained = 0
        return self.metrics.reduce()

    def _mean_metrics(self) -> dict[str, Any]:
        """Return the means of ``_pending_metrics``, keyed by name."""
        means = torch.stack(self._pending_metrics).mean(0)
        return dict(zip(self.metric_names, means.unbind(), strict=True))
