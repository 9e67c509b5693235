"""Example of a user-defined network: three convolutions and two heads.

To train the network, set ``custom_model: my_vision_network`` in an experiment. Each file in this
folder contains one subclass of RLlib's ``RLModule``. Its ``self.model_config`` contains the
``custom_options`` of the experiment.
"""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn


class MyVisionNetwork(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """RLlib module with a policy head and a value head on a small trunk.

    The option ``conv_filters`` lists [channels, kernel size, stride] of each convolution.
    """

    def setup(self) -> None:
        """Build the network; RLlib has already set the spaces and ``self.model_config``."""
        filters = self.model_config.get("conv_filters", [[16, 8, 4], [32, 4, 2], [32, 3, 1]])
        *_, channels = self.observation_space.shape
        layers: list[nn.Module] = []
        for count, kernel, stride in filters:
            layers += [nn.Conv2d(channels, count, kernel, stride), nn.ReLU()]
            channels = count
        self.trunk = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(256), nn.ReLU())
        # The first forward pass determines the input size of the lazy layer.
        self._compute_features(torch.zeros(1, *self.observation_space.shape))
        self.policy = nn.Linear(256, int(self.action_space.n))
        self.value = nn.Linear(256, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return the logits of the actions, float32 (B, 15).

        All algorithms call this method.
        """
        embeddings = self._compute_features(batch[Columns.OBS])
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(embeddings),
            Columns.EMBEDDINGS: embeddings,
        }

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the images, float32 (B,).

        PPO and IMPALA call this method.
        """
        if embeddings is None:
            with torch.no_grad():
                embeddings = self._compute_features(batch[Columns.OBS])
        values: Tensor = self.value(embeddings).squeeze(-1)
        return values

    def _compute_features(self, images: Tensor) -> Tensor:
        """Return the features of a batch of images, float32 (B, 256)."""
        features: Tensor = self.trunk(images.permute(0, 3, 1, 2).float() / 255)
        return features
