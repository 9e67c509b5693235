"""A network for processors: strided convolutions, the first one on squares that do not overlap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from battlesnake_rl.procgen.impala_network import PictureModule, scaled

SMALL: dict[str, Any] = {
    "filters": [[16, 4, 4], [32, 3, 2], [32, 3, 2]],
    "width": 256,
    "bfloat16": "auto",
}
"""The settings of `SmallModule` and their defaults.

``filters``: [channels, kernel, stride] of each convolution; ``width`` of the dense layer;
``bfloat16`` as for the IMPALA network. With three colours and 15 actions it has 146,000 parameters.
"""


class SmallTrunk(nn.Module):
    """Features of pictures: (B, H, W, C) uint8 to (B, ``width``)."""

    def __init__(self, shape: tuple[int, int, int], filters: list[list[int]], width: int) -> None:
        super().__init__()
        *_, channels = shape
        layers: list[nn.Module] = []
        for count, kernel, stride in filters:
            padding = 0 if kernel == stride else kernel // 2
            layers += [nn.Conv2d(channels, count, kernel, stride, padding), nn.ReLU()]
            channels = count
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(width), nn.ReLU())
        self.width = width
        # A first picture gives the lazy layer its size.
        self(torch.zeros(1, *shape, dtype=torch.uint8))
        for parameter in self.layers.parameters():
            if parameter.dim() > 1:
                nn.init.orthogonal_(parameter, gain=2**0.5)
            else:
                nn.init.zeros_(parameter)
        # Pictures arrive with the colours last.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pictures: Tensor) -> Tensor:
        """Features of a batch of pictures; 255 means 1."""
        features: Tensor = self.layers(scaled(pictures))
        return features


class SmallModule(PictureModule):
    """Policy and value on one `SmallTrunk`; ``model_config`` as `SMALL`."""

    defaults = SMALL

    def trunk_of(self, settings: dict[str, Any]) -> SmallTrunk:
        """The trunk with these settings."""
        return SmallTrunk(self.observation_space.shape, settings["filters"], settings["width"])
