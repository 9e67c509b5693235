"""Networks with a policy head and a value head.

PPO, DISTIL and RLlib's own algorithms use these networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from battlesnake_rl.mabs.policy.q_network import (
    ACTION_MASK,
    ConvTrunk,
    WeightAveragingMixin,
    make_network,
    network_settings,
    split_observation,
    trunk_settings,
    uses_bfloat16,
)

_VALUE_CHUNK_SIZE = 1024
"""Maximum number of observations per forward pass when no gradients are computed."""


class PolicyNetwork(nn.Module):
    """Policy network that maps uint8 (B, C, H, W) to logits, float32 (B, actions)."""

    def __init__(self, shape: tuple[int, int, int], num_actions: int, **trunk: Any) -> None:
        super().__init__()
        self.trunk = ConvTrunk(shape, **trunk)
        self.policy = nn.Linear(self.trunk.hidden_size, num_actions)

    def forward(self, planes: Tensor) -> Tensor:
        """Return the logits, float32 (B, actions).

        A server plays the move with the highest logit.
        """
        logits: Tensor = self.policy(self.trunk(planes))
        return logits


class SnakeActorCritic(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """RLlib module with a policy head and a value head on one trunk.

    Masked moves have probability 0. ``model_config`` contains the settings of
    `q_network.SnakeQModule`, except ``bfloat16``.
    """

    def setup(self) -> None:
        """Build the policy network and the value head."""
        planes = split_observation(self.observation_space)[0]
        self.network = PolicyNetwork(
            planes.shape, int(self.action_space.n), **trunk_settings(self.model_config)
        )
        self.value: nn.Module = nn.Linear(self.network.trunk.hidden_size, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return logits and features.

        A masked move has the lowest float32 value as its logit.
        """
        planes, mask = split_observation(batch[Columns.OBS])
        embeddings = self.network.trunk(planes)
        logits = mask_logits(self.network.policy(embeddings), mask)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the observations, float32 (B,).

        If ``embeddings`` is None, the method computes no gradients. Advantage estimation uses this
        mode.
        """
        if embeddings is not None:
            values: Tensor = self.value(embeddings).squeeze(-1)
            return values
        planes, _ = split_observation(batch[Columns.OBS])
        with torch.no_grad():
            # RLlib passes the whole train batch at once. Smaller chunks limit the memory use.
            parts = [
                self.value(self.network.trunk(part)) for part in planes.split(_VALUE_CHUNK_SIZE)
            ]
        return torch.cat(parts).squeeze(-1)


class SnakeActor(WeightAveragingMixin, SnakeActorCritic):  # type: ignore[misc]
    """`SnakeActorCritic` with an average of the policy's weights, and with bfloat16.

    By default, a processor without native bfloat16 uses float32. A custom network (key ``network``
    of ``model_config``) serves as the policy network. The value network is a second instance of the
    custom class, with one action.
    """

    def setup(self) -> None:
        """Build the policy network, the value network and the weight average."""
        shape = split_observation(self.observation_space)[0].shape
        settings = network_settings(self.model_config)
        self.network = make_network(PolicyNetwork, shape, int(self.action_space.n), settings)
        self.value: nn.Module = (
            nn.Linear(self.network.trunk.hidden_size, 1)
            if isinstance(self.network, PolicyNetwork)
            else make_network(PolicyNetwork, shape, 1, settings)
        )
        if not self.inference_only:
            self.init_average()

    def logits_and_values(self, planes: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, float32 (B, 4), and values, float32 (B,).

        Args:
            planes: uint8 (B, C, H, W), observations.
        """
        with self.autocast(planes):
            if not isinstance(self.network, PolicyNetwork):
                return self.network(planes).float(), self.value(planes).float().squeeze(-1)
            features = self.network.trunk(planes)
        # The heads use full precision, as in `DuelingQNetwork`.
        features = features.float()
        return self.network.policy(features), self.value(features).squeeze(-1)

    def evaluate(self, frames: NDArray[np.uint8]) -> tuple[NDArray[np.float32], ...]:
        """Return logits, float32 (B, 4), and values, float32 (B,), as numpy arrays.

        Args:
            frames: uint8 (B, C, H, W), observations; B may be 0.
        """
        if not len(frames):
            return np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
        with torch.inference_mode():
            return tuple(one.numpy() for one in self.logits_and_values(torch.from_numpy(frames)))

    def autocast(self, planes: Tensor) -> torch.autocast:
        """Return a context in which networks use bfloat16 if ``model_config`` enables it."""
        enabled = uses_bfloat16(self.model_config, planes.device)
        return torch.autocast(planes.device.type, torch.bfloat16, enabled=enabled)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return the logits of the weight average.

        A masked move has the lowest float32 value as its logit.
        """
        planes, mask = split_observation(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: mask_logits(self.inference_network(planes), mask)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return values and logits.

        A masked move has the lowest float32 value as its logit.
        """
        logits, values = self.logits_and_values(batch[Columns.OBS])
        masked = mask_logits(logits, batch[ACTION_MASK])
        return {Columns.ACTION_DIST_INPUTS: masked, Columns.VF_PREDS: values}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the observations, float32 (B,), without gradients."""
        with torch.no_grad():
            return self.logits_and_values(split_observation(batch[Columns.OBS])[0])[1]


def mask_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Replace the logits of masked moves by the lowest value of the dtype."""
    if mask is None:
        return logits
    return logits.masked_fill(~mask.bool(), torch.finfo(logits.dtype).min)
