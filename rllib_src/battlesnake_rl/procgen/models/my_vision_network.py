"""Example of a user-defined network: convolutions, dense layers and two heads.

The network is a port of the starter kit's ``my_vision_network`` from TensorFlow to PyTorch. It
differs in two points: the images are scaled to [0, 1], and the options have default values. To
train the network, set ``custom_model: my_vision_network`` in an experiment. Each file in this
folder contains one subclass of RLlib's ``RLModule``. Its ``self.model_config`` contains the
``custom_options`` of the experiment.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

_DEFAULTS: dict[str, Any] = {
    "conv_filters": [[16, 8, 4], [32, 4, 2], [32, 3, 1]],
    "conv_activation": "relu",
    "fcnet_hiddens": [256],
    "fcnet_activation": "relu",
    "vf_share_layers": True,
}
"""Options with their default values.

* ``conv_filters``: channels, kernel size (or [height, width]) and stride of each convolution.
* ``conv_activation``, ``fcnet_activation``: relu, tanh or linear.
* ``fcnet_hiddens``: number of units of each dense layer.
* ``vf_share_layers``: whether the value has the same layers as the policy.
"""

_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "linear": nn.Identity, None: nn.ReLU}


class MyVisionNetwork(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """RLlib module with a policy head and a value head on convolutions and dense layers."""

    def setup(self) -> None:
        """Build the network; RLlib has already set the spaces and ``self.model_config``."""
        self.options = {key: self.model_config.get(key, one) for key, one in _DEFAULTS.items()}
        self.trunk, width = self._build_trunk()
        self.policy = nn.Linear(width, int(self.action_space.n))
        shared = self.options["vf_share_layers"]
        self.value_trunk = nn.Identity() if shared else self._build_trunk()[0]
        self.value = nn.Linear(width, 1)

    def _build_trunk(self) -> tuple[nn.Sequential, int]:
        """Return the convolutions and dense layers, and their number of outputs."""
        height, width, channels = self.observation_space.shape
        layers: list[nn.Module] = []
        activation = _ACTIVATIONS[self.options["conv_activation"]]
        for count, kernel, stride in self.options["conv_filters"]:
            kernel_y, kernel_x = kernel if isinstance(kernel, list | tuple) else (kernel, kernel)
            # As with TensorFlow's padding "same", the output has 1 / stride of the input's size.
            outputs = math.ceil(height / stride), math.ceil(width / stride)
            missing_y = max((outputs[0] - 1) * stride + kernel_y - height, 0)
            missing_x = max((outputs[1] - 1) * stride + kernel_x - width, 0)
            left, top = missing_x // 2, missing_y // 2
            layers += [
                nn.ZeroPad2d((left, missing_x - left, top, missing_y - top)),
                nn.Conv2d(channels, count, (kernel_y, kernel_x), stride),
                activation(),
            ]
            (height, width), channels = outputs, count
        layers.append(nn.Flatten())
        size = height * width * channels
        for units in self.options["fcnet_hiddens"]:
            activation = _ACTIVATIONS[self.options["fcnet_activation"]]
            layers += [nn.Linear(size, units), activation()]
            size = units
        return nn.Sequential(*layers), size

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return the logits of the actions, float32 (B, 15).

        All algorithms call this method.
        """
        images = batch[Columns.OBS].permute(0, 3, 1, 2).float() / 255
        features = self.trunk(images)
        value_features = features if self.options["vf_share_layers"] else self.value_trunk(images)
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(features),
            Columns.EMBEDDINGS: value_features,
        }

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the images, float32 (B,).

        PPO and IMPALA call this method.
        """
        if embeddings is None:
            with torch.no_grad():
                embeddings = self._forward(batch)[Columns.EMBEDDINGS]
        values: Tensor = self.value(embeddings).squeeze(-1)
        return values
