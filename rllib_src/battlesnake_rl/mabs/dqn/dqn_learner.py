"""DQN's learner: RLlib's double DQN with deferred metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.dqn.dqn_learner import (
    QF_LOSS_KEY,
    QF_MAX_KEY,
    QF_MEAN_KEY,
    QF_MIN_KEY,
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_TARGET_NEXT_PREDS,
    TD_ERROR_MEAN_KEY,
)
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from battlesnake_rl.mabs.base.torch_learner import FastTorchLearnerMixin, copy_to_cpu_async
from battlesnake_rl.mabs.envs.env_factory import env_options
from battlesnake_rl.mabs.policy import symmetry_transforms
from battlesnake_rl.mabs.policy.q_network import NEW_ACTION_MASK, SnakeQModule


class SnakeDQNLearner(FastTorchLearnerMixin, DQNTorchLearner):  # type: ignore[misc]
    """RLlib's DQN learner for one module, with deferred metrics.

    `update` returns only TD errors. `report` returns the metrics of all updates since the last
    report.
    """

    def build(self) -> None:
        """Build the module and the optimizer."""
        super().build()
        self._pending_metrics: list[tuple[Tensor, Tensor, Tensor]] = []
        self._td_errors: Callable[[], NDArray[Any]]
        self._observation = env_options(self.config.env_config).observation_encoder

    def update(
        self, *, training_data: TrainingData, timesteps: dict[str, Any], **_: Any
    ) -> NDArray[np.float32]:
        """Run one update.

        Returns:
            Absolute TD errors of the batch, float32 (B,).
        """
        self._weights_seq_no += 1
        columns = training_data.batch[DEFAULT_MODULE_ID]
        if self.config.symmetry_augmentation:
            symmetry = int(self._random.integers(symmetry_transforms.NUM_SYMMETRIES))
            columns = symmetry_transforms.transform_batch(
                columns, symmetry, NEW_ACTION_MASK, self._observation
            )
        batch = {DEFAULT_MODULE_ID: {name: self._to_device(columns[name]) for name in columns}}
        outputs = self.module.forward_train(batch)
        gradients = self.compute_gradients(self.compute_losses(fwd_out=outputs, batch=batch))
        self.apply_gradients(self.postprocess_gradients(gradients))
        self.after_gradient_based_update(timesteps=timesteps)
        return self._td_errors()

    def compute_loss_for_module(
        self,
        *,
        module_id: str,
        config: Any,
        batch: Mapping[str, Tensor],
        fwd_out: dict[str, Tensor],
    ) -> Tensor:
        """Return RLlib's DQN loss; distributional returns are not supported."""
        q_values = fwd_out[QF_PREDS].gather(-1, batch[Columns.ACTIONS][:, None]).squeeze(-1)
        q_next = fwd_out[QF_NEXT_PREDS if config.double_q else QF_TARGET_NEXT_PREDS]
        best = q_next.argmax(-1, keepdim=True)
        # If all moves of an eliminated snake are masked, all its Q-values are -infinity.
        future = fwd_out[QF_TARGET_NEXT_PREDS].gather(-1, best).squeeze(-1).nan_to_num(neginf=0.0)
        lives = 1.0 - batch[Columns.TERMINATEDS].float()
        targets = batch[Columns.REWARDS] + config.gamma ** batch["n_step"] * (lives * future)
        loss_of = huber_loss if config.td_error_loss_fn == "huber" else mse_loss
        loss = (batch["weights"] * loss_of(q_values, targets, reduction="none")).mean()
        td_errors = (q_values.detach() - targets).abs()
        self._td_errors = copy_to_cpu_async(td_errors)
        self._pending_metrics.append((loss.detach(), q_values.detach(), td_errors))
        return loss

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Update the weight average, and update the target network if due."""
        super().after_gradient_based_update(timesteps=timesteps)
        for module in self.module.values():
            if isinstance(one := module.unwrapped(), SnakeQModule):
                one.update_average()

    def report(self) -> Any:
        """Return step counts, and the mean metrics of all updates since the last report.

        At least one update must have run since the last report. The minimum and maximum Q-values
        are computed per update and then averaged over updates.
        """
        losses, q_values, td_errors = map(torch.stack, zip(*self._pending_metrics, strict=True))
        self._pending_metrics.clear()
        seen = {
            self.TOTAL_LOSS_KEY: losses.mean(),
            QF_LOSS_KEY: losses.mean(),
            QF_MEAN_KEY: q_values.mean(),
            QF_MAX_KEY: q_values.amax(1).mean(),
            QF_MIN_KEY: q_values.amin(1).mean(),
            TD_ERROR_MEAN_KEY: td_errors.mean(),
        }
        self.metrics.log_dict(seen, key=DEFAULT_MODULE_ID, window=1)
        self._log_gradient_norm()
        self._log_step_counts(len(losses), td_errors.numel())
        return self.metrics.reduce()
