"""The IMPALA network: 64x64 pictures in, action logits and a value out, as an RLlib module."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from battlesnake_rl.mabs.policy.q_network import bfloat16_pays

_IMAGES_PER_CHUNK = {"cpu": 128, "cuda": 2048}
"""Larger batches go through the trunk in pieces of this many.

A CPU loses a third of its speed when the pieces outgrow its caches; a GPU only lacks the memory.
"""

MODEL_CONFIG: dict[str, Any] = {
    "patch": 1,
    "channels": [16, 32, 32],
    "blocks": 2,
    "width": 256,
    "bfloat16": "auto",
}
"""The settings of `ImpalaModule` and their defaults.

``patch``: with more than 1, a convolution on squares of so many pixels goes before; ``channels`` of
the stages, residual ``blocks`` of each, ``width`` of the dense layer; ``bfloat16``: ``"auto"``
(where the processor has it), ``True`` or ``False``.
"""


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions whose result is added to what went in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """(B, C, H, W) to the same."""
        changed: Tensor = features + self.layers(features)
        return changed


class ImpalaTrunk(nn.Module):
    """Features of pictures: (B, H, W, C) uint8 to (B, ``width``).

    Each stage is a convolution, a pooling that halves the sides, and residual blocks.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        patch: int,
        channels: list[int],
        blocks: int,
        width: int,
    ) -> None:
        super().__init__()
        height, breadth, previous = shape
        layers: list[nn.Module] = []
        if patch != 1:
            layers += [nn.Conv2d(previous, channels[0], patch, patch), nn.ReLU()]
            height, breadth, previous = height // patch, breadth // patch, channels[0]
        for count in channels:
            layers += [
                nn.Conv2d(previous, count, 3, padding=1),
                nn.MaxPool2d(3, stride=2, padding=1),
                *(ResidualBlock(count) for _ in range(blocks)),
            ]
            previous = count
            height, breadth = (height + 1) // 2, (breadth + 1) // 2
        layers += [nn.ReLU(), nn.Flatten(), nn.Linear(previous * height * breadth, width)]
        self.layers = nn.Sequential(*layers, nn.ReLU())
        self.width = width
        # Pictures arrive with the colours last; in that order convolutions take half the time.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pictures: Tensor) -> Tensor:
        """Features of a batch of pictures; 255 means 1."""
        device = pictures.device.type
        half = torch.is_autocast_enabled(device)
        scaled = pictures.to(torch.get_autocast_dtype(device) if half else torch.float32) / 255
        features: Tensor = self.layers(scaled.permute(0, 3, 1, 2))
        return features


class ImpalaModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """Policy and value on one `ImpalaTrunk`: PPO, APPO and IMPALA train it.

    ``model_config`` as `MODEL_CONFIG`. With three colours and 15 actions it has 626,256 parameters.
    """

    def setup(self) -> None:
        """Build the network."""
        # RLlib adds settings of its own networks, which mean nothing here.
        self.settings = {
            key: self.model_config.get(key, default) for key, default in MODEL_CONFIG.items()
        }
        shape = {key: value for key, value in self.settings.items() if key != "bfloat16"}
        self.trunk = ImpalaTrunk(self.observation_space.shape, **shape)
        self.policy = nn.Linear(self.trunk.width, int(self.action_space.n))
        self.value = nn.Linear(self.trunk.width, 1)
        # A policy that begins nearly uniform explores at first, whatever the pictures are.
        nn.init.orthogonal_(self.policy.weight, gain=0.01)
        nn.init.zeros_(self.policy.bias)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        embeddings = self._features(batch[Columns.OBS])
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(embeddings),
            Columns.EMBEDDINGS: embeddings,
        }

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Values (B,). Without ``embeddings``, as advantages are estimated, without gradients."""
        if embeddings is not None:
            values: Tensor = self.value(embeddings).squeeze(-1)
            return values
        with torch.no_grad():
            return self.compute_values(batch, self._features(batch[Columns.OBS]))

    def _features(self, pictures: Tensor) -> Tensor:
        """Features in full precision; the trunk computes in half where that is faster."""
        choice = self.settings["bfloat16"]
        enabled = bfloat16_pays(pictures.device) if choice == "auto" else bool(choice)
        pieces = torch.split(pictures, _IMAGES_PER_CHUNK[pictures.device.type])
        with torch.autocast(pictures.device.type, torch.bfloat16, enabled=enabled):
            features = torch.cat([self.trunk(piece) for piece in pieces])
        return features.float()
