"""Our optimizer, and DQN's learner: RLlib's double DQN, with little said about each update."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
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
from ray.rllib.core.learner.learner import DEFAULT_OPTIMIZER
from ray.rllib.core.learner.training_data import TrainingData
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
from torch.nn.functional import huber_loss, mse_loss
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from battlesnake_rl.mabs.envs.env_factory import env_options
from battlesnake_rl.mabs.policy import symmetry_transforms
from battlesnake_rl.mabs.policy.q_network import NEW_ACTION_MASK, SnakeQModule


def coming(tensor: Tensor) -> Callable[[], NDArray[Any]]:
    """Begin to copy ``tensor`` to the CPU; what is returned waits for that and gives it.

    It does not wait for what a GPU is given meanwhile.
    """
    copy = tensor.to("cpu", non_blocking=True)
    if tensor.device.type != "cuda":
        return copy.numpy
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def arrived() -> NDArray[Any]:
        copied.synchronize()
        return copy.numpy()

    return arrived


class QuietLearner:
    """Goes before a torch learner of RLlib's of one module: our optimizer, and little said.

    Logging and reducing the results of every update took a thirtieth of it, so it is kept
    until `report`.
    """

    def build(self: Any) -> None:
        """Module and optimizer."""
        super().build()  # type: ignore[misc]
        self._norms: list[Tensor] = []
        self._random = np.random.default_rng(self.config.seed)

    def configure_optimizers_for_module(
        self: Any, module_id: str, config: AlgorithmConfig | None = None
    ) -> None:
        """Adam, which steps in one call for all weights."""
        parameters = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(
                parameters, eps=(config or self.config).adam_epsilon, fused=True
            ),
            params=parameters,
            lr_or_lr_schedule=(config or self.config).lr,
        )

    def _tensor(self: Any, column: NDArray[Any]) -> Tensor:
        # Torch does not take what it must not write to, such as what comes through Ray.
        one = torch.from_numpy(column if column.flags.writeable else column.copy())
        if self.device.type == "cpu":
            return one
        # From memory that is not pinned torch copies while everything waits.
        return one.pin_memory().to(self.device, non_blocking=True)

    def postprocess_gradients(self: Any, gradients_dict: dict[Any, Tensor]) -> dict[Any, Tensor]:
        """Clip by the norm of all gradients, if they must be; other ways are left to RLlib."""
        if self.config.grad_clip_by != "global_norm":
            clipped: dict[Any, Tensor] = super().postprocess_gradients(  # type: ignore[misc]
                gradients_dict
            )
            return clipped
        gradients = [gradient for gradient in gradients_dict.values() if gradient is not None]
        norm = get_total_norm(gradients, foreach=True)
        most = self.config.grad_clip or math.inf
        # Looking at the norm would wait for a GPU, which rather multiplies by 1 now and then.
        if norm.device.type != "cpu" or norm > most:
            clip_grads_with_norm_(self._params.values(), most, norm, foreach=True)
        self._norms.append(norm)
        return gradients_dict

    def _log_counts(self: Any, updates: int, trained: int) -> None:
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

    def _log_norms(self: Any) -> None:
        if self._norms:
            name = f"gradients_{DEFAULT_OPTIMIZER}_global_norm"
            norm = torch.stack(self._norms).mean()
            self.metrics.log_value((DEFAULT_MODULE_ID, name), norm, window=1)
            self._norms.clear()


class SnakeDQNLearner(QuietLearner, DQNTorchLearner):  # type: ignore[misc]
    """RLlib's learner of one module, which keeps the results of its updates to itself.

    `update` returns TD errors and nothing else, and `report` what RLlib's own `update` would, of
    many updates at once.
    """

    def build(self) -> None:
        """Module and optimizer."""
        super().build()
        self._unreported: list[tuple[Tensor, Tensor, Tensor]] = []
        self._td_errors: Callable[[], NDArray[Any]]
        self._observation = env_options(self.config.env_config).encoder

    def update(
        self, *, training_data: TrainingData, timesteps: dict[str, Any], **_: Any
    ) -> NDArray[np.float32]:
        """One step on one batch; returns the absolute TD errors in the batch's order."""
        self._weights_seq_no += 1
        columns = training_data.batch[DEFAULT_MODULE_ID]
        if self.config.symmetries:
            way = int(self._random.integers(symmetry_transforms.WAYS))
            columns = symmetry_transforms.turned(columns, way, NEW_ACTION_MASK, self._observation)
        batch = {DEFAULT_MODULE_ID: {name: self._tensor(columns[name]) for name in columns}}
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
        """RLlib's loss, without distributions of returns; `report` says what it was."""
        q_values = fwd_out[QF_PREDS].gather(-1, batch[Columns.ACTIONS][:, None]).squeeze(-1)
        q_next = fwd_out[QF_NEXT_PREDS if config.double_q else QF_TARGET_NEXT_PREDS]
        best = q_next.argmax(-1, keepdim=True)
        # A snake that died may have had no move left: all its values are -infinity.
        future = fwd_out[QF_TARGET_NEXT_PREDS].gather(-1, best).squeeze(-1).nan_to_num(neginf=0.0)
        lives = 1.0 - batch[Columns.TERMINATEDS].float()
        targets = batch[Columns.REWARDS] + config.gamma ** batch["n_step"] * (lives * future)
        loss_of = huber_loss if config.td_error_loss_fn == "huber" else mse_loss
        loss = (batch["weights"] * loss_of(q_values, targets, reduction="none")).mean()
        td_errors = (q_values.detach() - targets).abs()
        self._td_errors = coming(td_errors)
        self._unreported.append((loss.detach(), q_values.detach(), td_errors))
        return loss

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Update the target, if it is time, and, of our own network, the mean of the weights."""
        super().after_gradient_based_update(timesteps=timesteps)
        for module in self.module.values():
            if isinstance(one := module.unwrapped(), SnakeQModule):
                one.update_mean()

    def report(self) -> Any:
        """Counts, and means over all updates since the last report, of which there is at least one.

        An update's largest and smallest value are taken first, then the mean of those.
        """
        losses, q_values, td_errors = map(torch.stack, zip(*self._unreported, strict=True))
        self._unreported.clear()
        seen = {
            self.TOTAL_LOSS_KEY: losses.mean(),
            QF_LOSS_KEY: losses.mean(),
            QF_MEAN_KEY: q_values.mean(),
            QF_MAX_KEY: q_values.amax(1).mean(),
            QF_MIN_KEY: q_values.amin(1).mean(),
            TD_ERROR_MEAN_KEY: td_errors.mean(),
        }
        self.metrics.log_dict(seen, key=DEFAULT_MODULE_ID, window=1)
        self._log_norms()
        self._log_counts(len(losses), td_errors.numel())
        return self.metrics.reduce()
