"""Decoupled advantage actor-critic (Raileanu and Fergus 2021): ``run: DAAC`` and ``run: IDAAC``.

The policy and the values have networks of their own. The policy's also learns to tell the
advantage of what was done, which depends less on the level than the value does; the values' learns
from the same turns more often. IDAAC adds that the policy's features should not tell how far into a
level one is: a classifier learns to say which of two frames of a level came first, and the policy's
network learns to leave it in doubt.

The values are those that the authors' program (rraileanu/idaac) has for all games; the paper tunes
some for each. As in that program the two frames are of one level, of the same episode or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.numpy import convert_to_numpy
from torch import Tensor, nn

from procgen_rllib.network import ImpalaModule, SeparateImpalaModule, check_network
from procgen_rllib.ppg import load_optimizer
from procgen_rllib.procgen_ppo import (
    Played,
    ProcgenPPO,
    ProcgenPPOConfig,
    ProcgenPPOLearner,
    Table,
    policy_loss,
    value_loss,
)

_VALUES, _ORDER = "value_phase", "order_classifier"
"""Keys of a checkpoint's learner: how many iterations there were, and the classifier."""

LEVEL, TURN, OTHER, LATER = "level", "turn", "other", "later"
"""Columns: the number of the level, and the turn within its episode; the row of another frame of
the same level in the whole batch, and whether this frame's turn is later than that one's."""


class DAACModule(SeparateImpalaModule):
    """Two networks; the policy's tells the advantages of actions too."""

    def setup(self) -> None:
        """Build the network."""
        super().setup()
        self.advantage = nn.Linear(self.trunk.width + int(self.action_space.n), 1)

    def advantages(self, embeddings: Tensor, actions: Tensor) -> Tensor:
        """The advantage (B,) of each of ``actions`` (B,), by the features (B, width)."""
        chosen = nn.functional.one_hot(actions.long(), int(self.action_space.n))
        told: Tensor = self.advantage(torch.cat([embeddings, chosen.float()], dim=1))
        return told.squeeze(-1)


class DAACConfig(ProcgenPPOConfig):
    """The settings of both networks.

    ``num_epochs`` is of the policy's, ``value_epochs`` of the values', which learns in every
    ``value_interval``-th iteration; ``advantage_coeff``: weight of the advantages' loss.
    """

    network: ClassVar[type[ImpalaModule]] = DAACModule

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DAAC)
        self.value_epochs = 9
        self.value_interval = 1
        self.advantage_coeff = 0.25
        # Of a loss that is minimized by itself; it counts where gradients are clipped.
        self.training(num_epochs=1, vf_loss_coeff=0.5)

    def validate(self) -> None:
        """Refuse what is not honoured, by name."""
        check_network(self, "value_epochs", "value_interval")
        super().validate()

    def told(self) -> Iterator[str]:
        """As `ProcgenPPOConfig.told`."""
        yield from super().told()
        yield (
            f"values by a network of their own, {self.value_epochs} epochs every "
            f"{self.value_interval} iterations, advantages {self.advantage_coeff:g} (DAAC)"
        )

    def get_default_learner_class(self) -> type[DAACLearner]:
        """What learns."""
        return DAACLearner


class DAAC(ProcgenPPO):
    """Both networks with the settings of `DAACConfig`."""

    @classmethod
    def get_default_config(cls) -> DAACConfig:
        """The configuration to start from."""
        return DAACConfig()


class DAACLearner(ProcgenPPOLearner):
    """First the policy's network learns, in RLlib's loop; then the values'."""

    def build(self) -> None:
        """Begin with the first iteration."""
        super().build()
        ((self._id, self._networks),) = self.module.items()
        self._iterations = 0

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """One optimizer for each network: their gradients are clipped apart."""
        module = self._module[module_id]
        values = set(module.value_parameters())
        parts = {
            "policy": [one for one in module.parameters() if one not in values],
            "values": [one for one in module.parameters() if one in values],
        }
        for name, parameters in parts.items():
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=name,
                optimizer=torch.optim.Adam(parameters, eps=config.adam_epsilon),
                params=parameters,
                lr_or_lr_schedule=config.lr,
            )

    def compute_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> Any:
        """Of the network whose loss it is; RLlib gives None for the other's parameters."""
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        return {name: one for name, one in gradients.items() if one is not None}

    def about_to_learn(self, columns: Table) -> Table:
        """Normalize the advantages of the whole batch: so the policy's network is to tell them."""
        advantages = columns[Postprocessing.ADVANTAGES]
        columns[Postprocessing.ADVANTAGES] = (advantages - advantages.mean()) / (
            advantages.std() + 1e-5
        )
        self._batch = columns
        return columns

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """The loss of the policy's network on one minibatch."""
        logits, embeddings = fwd_out[Columns.ACTION_DIST_INPUTS], fwd_out[Columns.EMBEDDINGS]
        actions = self._networks.get_train_action_dist_cls().from_logits(logits)
        wanted = batch[Postprocessing.ADVANTAGES]
        policy = policy_loss(
            actions.logp(batch[Columns.ACTIONS]),
            batch[Columns.ACTION_LOGP],
            wanted,
            config.clip_param,
            normalize=False,
        )
        told = self._networks.advantages(embeddings, batch[Columns.ACTIONS])
        advantage = nn.functional.mse_loss(told, wanted)
        entropy = actions.entropy().mean()
        coefficient = self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
        self.metrics.log_dict(
            {POLICY_LOSS_KEY: policy, "advantage_loss": advantage, ENTROPY_KEY: entropy},
            key=module_id,
            window=1,
        )
        loss: Tensor = policy + config.advantage_coeff * advantage - coefficient * entropy
        return loss

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """The values learn, where it is their turn."""
        super().after_gradient_based_update(timesteps=timesteps)
        if self._iterations % self.config.value_interval == 0:
            self._learn_values()
        self._iterations += 1
        del self._batch

    def _learn_values(self) -> None:
        size = self.config.minibatch_size
        for _ in range(self.config.value_epochs):
            for rows in torch.split(torch.randperm(len(self._batch[Columns.OBS])), size):
                part = {
                    name: column[rows.to(column.device)] for name, column in self._batch.items()
                }
                loss = value_loss(
                    self._networks.values(part),
                    part[Columns.VF_PREDS],
                    part[Postprocessing.VALUE_TARGETS],
                    self.config.vf_clip_param,
                )
                gradients = self.compute_gradients({self._id: self.config.vf_loss_coeff * loss})
                self.apply_gradients(self.postprocess_gradients(gradients))
        self.metrics.log_value((self._id, VF_LOSS_KEY), loss, window=1)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """That of `ProcgenPPOLearner`, with the number of iterations."""
        return super().get_state(*args, **kwargs) | {_VALUES: {"iterations": self._iterations}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave."""
        super().set_state(state)
        self._iterations = state.get(_VALUES, {}).get("iterations", 0)


class IDAACConfig(DAACConfig):
    """``order_coeff``: weight of the doubt in which the classifier is to be left.

    ``order_width``: of a hidden layer of the classifier; null: it has none.
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or IDAAC)
        self.order_coeff = 0.001
        self.order_width: int | None = None

    def told(self) -> Iterator[str]:
        """As `ProcgenPPOConfig.told`."""
        yield from super().told()
        yield f"order in doubt {self.order_coeff:g} (IDAAC)"

    def get_default_learner_class(self) -> type[IDAACLearner]:
        """What learns."""
        return IDAACLearner


class IDAAC(DAAC):
    """`DAAC` whose features do not tell the time, with the settings of `IDAACConfig`."""

    @classmethod
    def get_default_config(cls) -> IDAACConfig:
        """The configuration to start from."""
        return IDAACConfig()


class IDAACLearner(DAACLearner):
    """The learner of `DAAC` with a classifier that the policy's network works against."""

    def build(self) -> None:
        """Add the classifier, which only learners have, and what says where turns were."""
        super().build()
        self._learner_connector.insert_before(Played, Places())
        self._classifier = order_classifier(self._networks.trunk.width, self.config.order_width)
        self._classifier.to(self.device)
        self._classifying = torch.optim.Adam(
            self._classifier.parameters(), lr=self.config.lr, eps=self.config.adam_epsilon
        )

    def about_to_learn(self, columns: Table) -> Table:
        """Add another frame to each."""
        levels, turns = (convert_to_numpy(columns[name]) for name in (LEVEL, TURN))
        draws = torch.rand(len(levels), dtype=torch.float64).numpy()
        others = same_level(levels, draws)
        device = columns[Columns.OBS].device
        columns[OTHER] = torch.from_numpy(others).to(device)
        columns[LATER] = torch.from_numpy((turns[others] < turns).astype(np.float32)).to(device)
        return super().about_to_learn(columns)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """The loss of the policy's network on one minibatch; the classifier learns before it."""
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        others = self._networks.forward_train({Columns.OBS: self._batch[Columns.OBS][batch[OTHER]]})
        both = torch.cat([fwd_out[Columns.EMBEDDINGS], others[Columns.EMBEDDINGS]], dim=1)
        told, later = self._classifier(both.detach()).squeeze(-1), batch[LATER]
        classifying = nn.functional.binary_cross_entropy_with_logits(told, later)
        self._classifying.zero_grad(set_to_none=True)
        classifying.backward()  # type: ignore[no-untyped-call]
        if config.grad_clip is not None:
            nn.utils.clip_grad_norm_(self._classifier.parameters(), config.grad_clip)
        self._classifying.step()
        doubt = doubt_loss(self._classifier(both).squeeze(-1))
        right = ((told > 0) == (later > 0.5)).float().mean()
        self.metrics.log_dict(
            {"order_loss": doubt, "order_classifier_loss": classifying, "order_told": right},
            key=module_id,
            window=1,
        )
        invariant: Tensor = loss + config.order_coeff * doubt
        return invariant

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """That of `DAACLearner`, with the classifier."""
        classifier = {
            "layers": convert_to_numpy(self._classifier.state_dict()),
            "optimizer": convert_to_numpy(self._classifying.state_dict()),
        }
        return super().get_state(*args, **kwargs) | {_ORDER: classifier}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave."""
        super().set_state(state)
        if _ORDER in state:
            layers = {name: torch.as_tensor(one) for name, one in state[_ORDER]["layers"].items()}
            self._classifier.load_state_dict(layers)
            load_optimizer(self._classifying, state[_ORDER]["optimizer"], self.device)


class Places(ConnectorV2):  # type: ignore[misc]
    """Adds the columns `LEVEL` and `TURN`, before turns are left out."""

    def __call__(
        self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """``batch`` with the new columns; each part of an episode has got one turn more by now."""
        (columns,) = batch.values()
        lengths = [len(one) for one in episodes]
        levels = np.repeat([int(one.get_infos(0)["level_seed"]) for one in episodes], lengths)
        turns = np.concatenate([one.t_started + np.arange(len(one)) for one in episodes])
        device = columns[Columns.OBS].device
        columns[LEVEL] = torch.from_numpy(levels).to(device)
        columns[TURN] = torch.from_numpy(turns).to(device)
        return batch


def same_level(levels: NDArray[np.integer], draws: NDArray[np.floating]) -> NDArray[np.int64]:
    """For each row (B,) one with the same level, maybe itself, as ``draws`` (B,) below 1 say.

    >>> same_level(np.array([7, 3, 7, 7]), np.array([0.0, 0.9, 0.5, 0.99])).tolist()
    [0, 1, 2, 3]
    """
    order = np.argsort(levels, kind="stable")
    first, count = (np.searchsorted(levels[order], levels, side) for side in ("left", "right"))
    chosen: NDArray[np.int64] = order[first + (draws * (count - first)).astype(np.int64)]
    return chosen


def order_classifier(width: int, hidden: int | None) -> nn.Sequential:
    """From two frames' features, (B, 2 * width), to whether the first came later: logits (B, 1)."""
    if hidden is None:
        return nn.Sequential(nn.Linear(2 * width, 1))
    return nn.Sequential(nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, 1))


def doubt_loss(logits: Tensor) -> Tensor:
    """How far the classifier is from telling one half, as mean cross entropy; ``logits`` (B,)."""
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, 0.5))
