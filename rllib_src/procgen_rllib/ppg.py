"""Phasic policy gradient (Cobbe et al. 2021): ``run: PPG``.

Policy and values have networks of their own, so that neither disturbs the other. In the policy
phase both learn as in PPO, from each turn once. Every so many iterations comes the auxiliary phase:
the policy's network learns to tell the values too, while a penalty keeps its policy where it was.

The values are those of the authors' program (openai/phasic-policy-gradient), for 64 games (in the
paper four processes have as many each). Otherwise than there, advantages are normalized in each
minibatch, returns that rewards are divided by are discounted by gamma, and layers begin as in
`network`. The frames of a whole phase are kept in memory: 6.4 GB with 32 iterations of 16,384. They
are not in checkpoints: where a run goes on, the next auxiliary phase comes when it was to come, and
has what was played since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.numpy import convert_to_numpy
from ray.rllib.utils.torch_utils import convert_to_torch_tensor
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from procgen_rllib.drac import divergence
from procgen_rllib.network import ImpalaModule, SeparateImpalaModule, check_network
from procgen_rllib.procgen_ppo import ProcgenPPO, ProcgenPPOConfig, ProcgenPPOLearner, Table

_STATE = "auxiliary_phase"
"""Under this key a checkpoint's learner has the optimizer, and when the next phase is."""


class PPGModule(SeparateImpalaModule):
    """Two networks; the policy's tells values too, for the auxiliary phase alone."""

    def setup(self) -> None:
        """Build the network."""
        super().setup()
        self.auxiliary_value = nn.Linear(self.trunk.width, 1)

    def auxiliary_values(self, embeddings: Tensor) -> Tensor:
        """Values (B,) by features of the policy's network, (B, width)."""
        values: Tensor = self.auxiliary_value(embeddings).squeeze(-1)
        return values


class PPGConfig(ProcgenPPOConfig):
    """The settings of both phases.

    ``auxiliary_interval``: iterations of a policy phase, whose epochs are ``num_epochs``.
    ``auxiliary_epochs`` and ``auxiliary_minibatch_size``: of the auxiliary phase; ``clone_coeff``:
    weight of its penalty.
    """

    network: ClassVar[type[ImpalaModule]] = PPGModule

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or PPG)
        self.auxiliary_interval = 32
        self.auxiliary_epochs = 6
        self.auxiliary_minibatch_size = 1024  # four games' 256 turns
        self.clone_coeff = 1.0
        self.adam_epsilon = 1e-8
        self.training(num_epochs=1, grad_clip=None, vf_clip_param=float("inf"), vf_loss_coeff=0.5)

    def validate(self) -> None:
        """Refuse what is not honoured, by name."""
        check_network(self, "auxiliary_interval", "auxiliary_epochs", "auxiliary_minibatch_size")
        super().validate()

    def told(self) -> Iterator[str]:
        """As `ProcgenPPOConfig.told`."""
        yield from super().told()
        yield (
            f"auxiliary phase (PPG) every {self.auxiliary_interval} iterations with "
            f"{self.auxiliary_epochs} epochs, minibatches of {self.auxiliary_minibatch_size:,}, "
            f"clone {self.clone_coeff:g}"
        )

    def get_default_learner_class(self) -> type[PPGLearner]:
        """What learns."""
        return PPGLearner


class PPG(ProcgenPPO):
    """Both phases with the settings of `PPGConfig`."""

    @classmethod
    def get_default_config(cls) -> PPGConfig:
        """The configuration to start from."""
        return PPGConfig()


class Kept(NamedTuple):
    """An iteration's frames, uint8 (B, 64, 64, C), and the values that they should have, (B,)."""

    pictures: Tensor
    targets: Tensor


class PPGLearner(ProcgenPPOLearner):
    """The learner of `ProcgenPPO`, whose batches are kept for the auxiliary phase."""

    def build(self) -> None:
        """Add an optimizer for the auxiliary phase, which keeps its own moments."""
        super().build()
        ((_, self._networks),) = self.module.items()
        self._auxiliary = torch.optim.Adam(
            self._networks.parameters(), lr=self.config.lr, eps=self.config.adam_epsilon
        )
        self._kept: list[Kept] = []
        self._iterations = 0

    def about_to_learn(self, columns: Table) -> Table:
        """Keep the batch, in the memory of the processor."""
        self._kept.append(
            Kept(columns[Columns.OBS].cpu(), columns[Postprocessing.VALUE_TARGETS].cpu())
        )
        return columns

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """The auxiliary phase, where it is time for it."""
        super().after_gradient_based_update(timesteps=timesteps)
        self._iterations += 1
        if self._iterations >= self.config.auxiliary_interval:
            self._auxiliary_phase()
            self._kept.clear()
            self._iterations = 0

    def _auxiliary_phase(self) -> None:
        played: ConcatDataset[tuple[Tensor, ...]] = ConcatDataset(
            [TensorDataset(*kept, self._logits(kept.pictures)) for kept in self._kept]
        )
        minibatches = DataLoader(played, self.config.auxiliary_minibatch_size, shuffle=True)
        for _ in range(self.config.auxiliary_epochs):
            for minibatch in minibatches:
                pictures, targets, before = (column.to(self.device) for column in minibatch)
                batch = {Columns.OBS: pictures}
                out = self._networks.forward_train(batch)
                embeddings = out[Columns.EMBEDDINGS]
                losses = auxiliary_losses(
                    self._networks.auxiliary_values(embeddings),
                    self._networks.compute_values(batch, embeddings=embeddings),
                    targets,
                    before,
                    out[Columns.ACTION_DIST_INPUTS],
                )
                self._auxiliary.zero_grad(set_to_none=True)
                (losses[0] + losses[1] + self.config.clone_coeff * losses[2]).backward()
                self._auxiliary.step()
        names = ("auxiliary_vf_loss", "auxiliary_own_vf_loss", "auxiliary_kl")
        told = dict(zip(names, losses, strict=True))
        self.metrics.log_dict(told, key=next(iter(self.module.keys())), window=1)

    def _logits(self, pictures: Tensor) -> Tensor:
        """Of the policy as it is."""
        with torch.no_grad():
            parts = [
                self._networks.forward_train({Columns.OBS: part.to(self.device)})
                for part in torch.split(pictures, self.config.auxiliary_minibatch_size)
            ]
        return torch.cat([part[Columns.ACTION_DIST_INPUTS].cpu() for part in parts])

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """That of `ProcgenPPOLearner`, with the auxiliary optimizer and when it works next."""
        state = super().get_state(*args, **kwargs)
        optimizer = convert_to_numpy(self._auxiliary.state_dict())
        return state | {_STATE: {"optimizer": optimizer, "iterations": self._iterations}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave."""
        super().set_state(state)
        if _STATE in state:
            load_optimizer(self._auxiliary, state[_STATE]["optimizer"], self.device)
            self._iterations = state[_STATE]["iterations"]


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any], device: Any) -> None:
    """Put ``state``, with numpy's arrays for tensors, into ``optimizer``."""
    moments = convert_to_torch_tensor(state["state"], device=device)
    optimizer.load_state_dict({**state, "state": moments})


def auxiliary_losses(
    auxiliary: Tensor, values: Tensor, targets: Tensor, before: Tensor, logits: Tensor
) -> Sequence[Tensor]:
    """Losses of the values by the policy's network and by their own (B,), and of the policy.

    The last is the mean divergence of the policy with ``logits`` (B, actions) from that with
    ``before``, which it had as the phase began.
    """
    return (
        0.5 * nn.functional.mse_loss(auxiliary, targets),
        0.5 * nn.functional.mse_loss(values, targets),
        divergence(before, logits),
    )
