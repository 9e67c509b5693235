"""Data-regularized actor-critic (Raileanu et al. 2021): ``run: DrAC``.

PPO that is held to decide alike on what looks alike: two terms are added to its loss, how far the
policy on randomly cropped frames is from that on the frames themselves, and how far the values are
apart. The crop is the paper's best augmentation on average: the frame with its outermost pixels
repeated 12 times all around, and of that 64 x 64 anywhere.

Coefficient and size are those of the authors' program (rraileanu/auto-drac); all else is the
published PPO. There the policies' distance is estimated by one drawn action, here it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from torch import Tensor, nn

from procgen_rllib.procgen_ppo import ProcgenPPO, ProcgenPPOConfig, ProcgenPPOLearner

PAD = 12
"""How far a crop may be from the middle, in pixels."""


class DrACConfig(ProcgenPPOConfig):
    """``drac_coeff``: weight of the two terms beside PPO's loss."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DrAC)
        self.drac_coeff = 0.1

    def validate(self) -> None:
        """Refuse what is not honoured, by name."""
        if self.rad:
            raise ValueError(
                "rad must be false: DrAC plays on the frames as they are, and augments them only "
                "in its loss; ProcgenPPO has rad"
            )
        super().validate()

    def told(self) -> Iterator[str]:
        """As `ProcgenPPOConfig.told`."""
        yield from super().told()
        yield f"held to the same on crops (DrAC, coefficient {self.drac_coeff:g})"

    def get_default_learner_class(self) -> type[DrACLearner]:
        """What learns."""
        return DrACLearner


class DrAC(ProcgenPPO):
    """PPO with the settings of `DrACConfig`."""

    @classmethod
    def get_default_config(cls) -> DrACConfig:
        """The configuration to start from."""
        return DrACConfig()


class DrACLearner(ProcgenPPOLearner):
    """The learner of `ProcgenPPO` with two more terms in its loss."""

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """The loss of one minibatch."""
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        module = self.module[module_id].unwrapped()
        crops = {Columns.OBS: cropped(batch[Columns.OBS])}
        on_crops = module.forward_train(crops)
        policy = divergence(
            fwd_out[Columns.ACTION_DIST_INPUTS].detach(), on_crops[Columns.ACTION_DIST_INPUTS]
        )
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS)).detach()
        seen = module.compute_values(crops, embeddings=on_crops.get(Columns.EMBEDDINGS))
        value = 0.5 * nn.functional.mse_loss(seen, values)
        self.metrics.log_dict(
            {"drac_policy_loss": policy, "drac_vf_loss": value}, key=module_id, window=1
        )
        regularized: Tensor = loss + config.drac_coeff * (policy + value)
        return regularized


def cropped(pictures: Tensor) -> Tensor:
    """Each of the pictures (B, H, W, C) shifted at random by up to `PAD` pixels both ways.

    Beyond the picture its outermost pixels are repeated.
    """
    count, height, width, _ = pictures.shape
    device = pictures.device

    def places(length: int) -> Tensor:
        shifts = torch.randint(-PAD, PAD + 1, (count, 1), device=device)
        return (torch.arange(length, device=device) + shifts).clamp(0, length - 1)

    rows, columns = places(height), places(width)
    picture = torch.arange(count, device=device)[:, None, None]
    return pictures[picture, rows[:, :, None], columns[:, None, :]]


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence of the policy with ``others`` from that with ``logits``.

    Both are (B, actions); how much is lost where ``others`` stands in for ``logits``.
    """
    return nn.functional.kl_div(
        others.log_softmax(-1), logits.log_softmax(-1), log_target=True, reduction="batchmean"
    )
