"""RLlib modules around networks of the starter kit, which subclass ``TorchModelV2``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.models.catalog import MODEL_DEFAULTS
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
from torch import Tensor


class _ModelV2Module(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """Module that computes logits and values with a ``TorchModelV2`` without recurrent state.

    The network reads the ``custom_options`` of the experiment from its ``model_config``, and also
    from the entries ``custom_options`` and ``custom_model_config`` there.
    """

    network_class: ClassVar[type[TorchModelV2]]

    def setup(self) -> None:
        """Build the network with the arguments of RLlib's former API."""
        options = dict(self.model_config)
        config = {
            **MODEL_DEFAULTS,
            **options,
            "custom_options": options,
            "custom_model_config": options,
        }
        spaces = (self.observation_space, self.action_space)
        self.network = self.network_class(*spaces, int(self.action_space.n), config, "network")

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return the logits of the actions, float32 (B, 15), and the values as embeddings."""
        images = batch[Columns.OBS]
        inputs = {"obs": images, "obs_flat": images.flatten(1), "is_training": self.training}
        logits, _ = self.network.forward(inputs, [], None)
        return {
            Columns.ACTION_DIST_INPUTS: logits,
            Columns.EMBEDDINGS: self.network.value_function(),
        }

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the images, float32 (B,)."""
        if embeddings is not None:
            return embeddings
        with torch.no_grad():
            values: Tensor = self._forward(batch)[Columns.EMBEDDINGS]
            return values


def wrap_network(network_class: type[TorchModelV2]) -> type[_ModelV2Module]:
    """Return a subclass of `_ModelV2Module` for a network class.

    The subclass belongs to the network's module, so that both are serialized by value.
    """
    members = {"network_class": network_class, "__module__": network_class.__module__}
    return type(network_class.__name__, (_ModelV2Module,), members)
