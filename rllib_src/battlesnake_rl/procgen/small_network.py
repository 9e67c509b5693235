"""A network for processors: strided convolutions, the first one on squares that do not overlap."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from battlesnake_rl.mabs.policy.q_network import uses_bfloat16

SMALL: dict[str, Any] = {
    "filters": [[16, 4, 4], [32, 3, 2], [32, 3, 2]],
    "width": 256,
    "bfloat16": "auto",
}
"""The settings of `SmallModule` and their defaults.

``filters``: [channels, kernel, stride] of each convolution; ``width`` of the dense layer;
``bfloat16`` as for the IMPALA network. With three colours and 15 actions it has 146,000 parameters.
"""


class SmallModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """Policy and value on one trunk; ``model_config`` as `SMALL`."""

    def setup(self) -> None:
        """Build the network."""
        settings = SMALL | {
            key: self.model_config[key] for key in SMALL if key in self.model_config
        }
        *_, channels = self.observation_space.shape
        layers: list[nn.Module] = []
        for count, kernel, stride in settings["filters"]:
            padding = 0 if kernel == stride else kernel // 2
            layers += [nn.Conv2d(channels, count, kernel, stride, padding), nn.ReLU()]
            channels = count
        width = settings["width"]
        self.trunk = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(width), nn.ReLU())
        self.policy = nn.Linear(width, int(self.action_space.n))
        self.value = nn.Linear(width, 1)
        # A first picture gives the lazy layer its size.
        self.judge(torch.zeros(1, *self.observation_space.shape))
        # Pictures arrive with the colours last.
        self.trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # A policy that begins nearly uniform explores at first, whatever the pictures are.
        nn.init.orthogonal_(self.policy.weight, gain=0.01)
        nn.init.zeros_(self.policy.bias)

    def judge(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, 15) and values (B,), float32, of pictures (B, H, W, C) uint8."""
        device = pictures.device
        enabled = uses_bfloat16(self.model_config, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=enabled):
            features = self.trunk((pictures.float() / 255).permute(0, 3, 1, 2))
        features = features.float()
        return self.policy(features), self.value(features).squeeze(-1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        logits, values = self.judge(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.VF_PREDS: values}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Values (B,), without gradients."""
        with torch.no_grad():
            return self.judge(batch[Columns.OBS])[1]
