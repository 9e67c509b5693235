"""The network of PPO and IMPALA: the Q-network's trunk with a policy and a value head."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from battlesnake_rl.mabs.policy.q_network import ConvTrunk, split_observation, trunk_settings

VALUE_CHUNK = 1024
"""Positions whose values are computed at once where no gradients are needed."""


class PolicyNetwork(nn.Module):
    """Logits of the moves: (B, C, H, W) uint8 to (B, actions) float32."""

    def __init__(self, shape: tuple[int, int, int], num_actions: int, **trunk: Any) -> None:
        super().__init__()
        self.trunk = ConvTrunk(shape, **trunk)
        self.policy = nn.Linear(self.trunk.width, num_actions)

    def forward(self, planes: Tensor) -> Tensor:
        """The logits; a server plays the highest."""
        logits: Tensor = self.policy(self.trunk(planes))
        return logits


class SnakeActorCritic(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """Policy and value on one trunk; masked moves have no probability.

    ``model_config`` as for `network.SnakeQModule`, without ``bfloat16``.
    """

    def setup(self) -> None:
        """Build the network."""
        planes = split_observation(self.observation_space)[0]
        self.network = PolicyNetwork(
            planes.shape, int(self.action_space.n), **trunk_settings(self.model_config)
        )
        self.value = nn.Linear(self.network.trunk.width, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        planes, mask = split_observation(batch[Columns.OBS])
        embeddings = self.network.trunk(planes)
        logits = self.network.policy(embeddings)
        if mask is not None:
            logits = logits.masked_fill(~mask.bool(), torch.finfo(logits.dtype).min)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Values (B,). Without ``embeddings``, as advantages are estimated, without gradients."""
        if embeddings is not None:
            values: Tensor = self.value(embeddings).squeeze(-1)
            return values
        planes, _ = split_observation(batch[Columns.OBS])
        with torch.no_grad():
            # In pieces: RLlib passes the whole train batch at once.
            parts = [self.value(self.network.trunk(part)) for part in planes.split(VALUE_CHUNK)]
        return torch.cat(parts).squeeze(-1)
