"""IMPALA network as an RLlib module: 64x64 images to action logits and a value."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from battlesnake_rl.mabs.policy.q_network import uses_bfloat16

_MAX_IMAGES_PER_CHUNK = {"cpu": 128, "cuda": 2048}
"""Maximum number of images per forward pass of the trunk, by device type.

A CPU loses a third of its speed if the data of a forward pass exceeds the caches. On a GPU, only
the memory limits this number.
"""

MODEL_CONFIG: dict[str, Any] = {
    "patch": 1,
    "channels": [16, 32, 32],
    "blocks": 2,
    "width": 256,
    "bfloat16": "auto",
}
"""Settings of `ImpalaModule` with their default values.

* ``patch``: side of the squares of an initial convolution, in pixels; 1 for no initial convolution.
* ``channels``: number of channels of each stage.
* ``blocks``: number of residual blocks per stage.
* ``width``: number of units of the dense layer.
* ``bfloat16``: ``True``, ``False`` or ``"auto"`` (bfloat16 on processors with native support).
"""


class _ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Map features (B, C, H, W) to features of the same shape."""
        changed: Tensor = features + self.layers(features)
        return changed


class _ImpalaTrunk(nn.Module):
    """Trunk that maps uint8 (B, H, W, C) to features, float (B, ``width``).

    Each stage consists of a convolution, a pooling that halves height and width, and residual
    blocks.
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
                *(_ResidualBlock(count) for _ in range(blocks)),
            ]
            previous = count
            height, breadth = (height + 1) // 2, (breadth + 1) // 2
        layers += [nn.ReLU(), nn.Flatten(), nn.Linear(previous * height * breadth, width)]
        self.layers = nn.Sequential(*layers, nn.ReLU())
        self.width = width
        # The images have channels last. Convolutions are twice as fast in the same memory order.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of a batch of images, float (B, ``width``).

        The network maps byte 255 to 1.0.
        """
        device = images.device.type
        half = torch.is_autocast_enabled(device)
        scaled = images.to(torch.get_autocast_dtype(device) if half else torch.float32) / 255
        features: Tensor = self.layers(scaled.permute(0, 3, 1, 2))
        return features


class ImpalaModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """RLlib module with a policy head and a value head on one `_ImpalaTrunk`.

    PPO, APPO and IMPALA can train the module. ``model_config`` contains the settings of
    `MODEL_CONFIG`. With three channels and 15 actions, the network has 626,256 parameters.
    """

    def setup(self) -> None:
        """Build the trunk, the policy head and the value head."""
        # RLlib adds the settings of its own networks. These settings have no effect here.
        self.settings = {
            key: self.model_config.get(key, default) for key, default in MODEL_CONFIG.items()
        }
        shape = {key: value for key, value in self.settings.items() if key != "bfloat16"}
        self.trunk = _ImpalaTrunk(self.observation_space.shape, **shape)
        self.policy = nn.Linear(self.trunk.width, int(self.action_space.n))
        self.value = nn.Linear(self.trunk.width, 1)
        # A nearly uniform initial policy explores all actions in all states.
        nn.init.orthogonal_(self.policy.weight, gain=0.01)
        nn.init.zeros_(self.policy.bias)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return the action logits and the features of a batch of images."""
        embeddings = self._compute_features(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.policy(embeddings), Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the images, float32 (B,).

        If ``embeddings`` is None, the method computes no gradients. Advantage estimation uses this
        mode.
        """
        if embeddings is not None:
            values: Tensor = self.value(embeddings).squeeze(-1)
            return values
        with torch.no_grad():
            return self.compute_values(batch, self._compute_features(batch[Columns.OBS]))

    def _compute_features(self, images: Tensor) -> Tensor:
        """Return the features of a batch of images, float32 (B, ``width``).

        The trunk computes in bfloat16 if the processor supports bfloat16 natively.
        """
        enabled = uses_bfloat16(self.settings, images.device)
        pieces = torch.split(images, _MAX_IMAGES_PER_CHUNK[images.device.type])
        with torch.autocast(images.device.type, torch.bfloat16, enabled=enabled):
            features = torch.cat([self.trunk(piece) for piece in pieces])
        return features.float()
