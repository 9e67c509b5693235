"""Q-network as an RLlib module that maps uint8 planes to four Q-values.

Three 3x3 convolutions (32, 64, 64 channels; strides 2, 2, 1) process the whole board. The cells
around the own head (``head_crop``) bypass the convolutions. A dense layer of 256 units and a
dueling head combine both inputs. The class supports every board size. The weights of a checkpoint
fit only one board size, except with ``global_pool``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from battlesnake_gym.common import extensions, old_runs

NETWORK_PREFIX = "network."
"""Prefix of the names of the network's weights in a module's state."""

MODULE_APIS = (QNetAPI, TargetNetworkAPI)
"""RLlib APIs that DQN and APEX require of a module."""

NEW_ACTION_MASK = "new_action_mask"
"""Optional batch column, bool (B, 4): action masks of the next states.

If the column is missing, the next states have no masked moves.
"""

OBSERVATIONS, ACTION_MASK = "observations", "action_mask"
"""Keys of an observation if the environment masks moves.

The observation space has the same keys.
"""

TRUNK_DEFAULTS = {
    "channels": (32, 64, 64),
    "strides": (2, 2, 1),
    "hidden_size": 256,
    "head_crop": 7,
    "head_plane": None,
    "global_pool": False,
}
"""Trunk settings in a ``model_config``, with default values."""


def _crop_around(planes: Tensor, rows: Tensor, columns: Tensor, side: int) -> Tensor:
    """Return the cells around one cell of each board, with zeros outside the board.

    Args:
        planes: (B, C, H, W), any dtype.
        rows: int64 (B,), row of the central cell.
        columns: int64 (B,), column of the central cell.
        side: Width and height of the crop, an odd number of cells.

    Returns:
        (B, side * side * C), with the dtype of ``planes``.
    """
    margin = side // 2
    padded = nn.functional.pad(planes.permute(0, 2, 3, 1), (0, 0, *(margin,) * 4))
    boards, height, width, count = padded.shape
    window = torch.arange(side, device=planes.device)
    offsets = (window[:, None] * width + window).flatten()
    firsts = torch.arange(boards, device=planes.device) * (height * width) + rows * width + columns
    cells = (firsts[:, None] + offsets).flatten()
    return padded.reshape(-1, count)[cells].reshape(boards, side * side * count)


def trunk_settings(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ConvTrunk` that a ``model_config`` contains or implies."""
    # Checkpoints of version 0.1 contain pickled settings with the old names.
    settings = old_runs.rename_keys(model_config, old_runs.NETWORK_SETTING_NAMES)
    trunk = {key: settings.get(key, default) for key, default in TRUNK_DEFAULTS.items()}
    if not trunk["global_pool"]:
        # A resumed run compares its settings with those of the checkpoint, which may be older
        # than this setting.
        del trunk["global_pool"]
    return trunk


def network_settings(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine a network, except its shapes."""
    if own := model_config.get("network"):
        return {"network": own}
    settings = trunk_settings(model_config)
    if "gru_size" in model_config:
        settings["gru_size"] = model_config["gru_size"]
    return settings if model_config.get("dueling", True) else settings | {"dueling": False}


def make_network(
    kind: Callable[..., nn.Module], shape: Sequence[int], actions: int, settings: Mapping[str, Any]
) -> nn.Module:
    """Create a network with random weights.

    Args:
        kind: Class of the network, unless ``settings`` name a custom class.
        shape: Shape (C, H, W) of an observation.
        actions: Number of actions.
        settings: Result of `network_settings`.

    Raises:
        ValueError: If the custom class does not exist or is not a torch module.
    """
    if "network" not in settings:
        return kind(tuple(shape), actions, **settings)
    own = extensions.load_object(settings["network"], "network")
    if not (isinstance(own, type) and issubclass(own, nn.Module)):
        raise ValueError(
            f"network {settings['network']} must be a subclass of torch.nn.Module with the "
            f"arguments (shape, actions), got {own!r:.80}"
        )
    made: nn.Module = own(tuple(shape), actions)
    return made


def _has_native_bfloat16(device: torch.device) -> bool:
    """Return whether ``device`` supports bfloat16 natively.

    On devices without native support, float32 is faster.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def uses_bfloat16(model_config: Mapping[str, Any], device: torch.device) -> bool:
    """Return whether a network with this ``model_config`` uses bfloat16 on ``device``."""
    choice = model_config.get("bfloat16", "auto")
    return _has_native_bfloat16(device) if choice == "auto" else bool(choice)


class _ChannelsLastFlatten(nn.Flatten):
    """Flatten layer that returns its gradient in channels-last order.

    With any other memory order, the backward pass of the preceding ReLU is several times slower.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Return the flattened features, and register a hook for their gradient."""
        if features.requires_grad:
            features.register_hook(_to_channels_last)  # type: ignore[no-untyped-call]
        return super().forward(features)


class _GlobalPool(nn.Module):
    """Global average and maximum pooling of each channel: (B, C, H, W) to (B, 2 * C)."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the pooled features."""
        return torch.cat((features.mean((2, 3)), features.amax((2, 3))), 1)


class _DenseWithCrop(torch.autograd.Function):
    """Dense layer whose backward pass skips the gradient of the head crop.

    The crop is an input of the network, so nothing needs its gradient, which has most of the
    columns. Updates are 1.1 times as fast.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, combined: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """Return the outputs of the dense layer, float (B, units).

        Args:
            ctx: Context of the backward pass.
            features: float (B, F), features that need a gradient.
            combined: float (B, F + crop), the values of ``features`` and the head crop.
            weight: float32 (units, F + crop).
            bias: float32 (units,).
        """
        ctx.num_features = features.shape[1]
        ctx.save_for_backward(combined, weight)
        return nn.functional.linear(combined, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the features, the weights and the biases."""
        (gradient,) = gradients
        combined, weight = ctx.saved_tensors
        columns = weight[:, : ctx.num_features].to(gradient.dtype)
        return gradient @ columns, None, gradient.t() @ combined, gradient.sum(0)


def _to_channels_last(values: Tensor) -> Tensor:
    """Return ``values`` in channels-last memory order."""
    return values.contiguous(memory_format=torch.channels_last)


class ConvTrunk(nn.Module):
    """Trunk that maps uint8 (B, C, H, W) to features, float (B, ``hidden_size``).

    Most moves depend on the cells around the own head. Strides blur these cells. The dense layer
    therefore also receives these cells directly.

    Args:
        shape: Shape (C, H, W) of an observation.
        channels: Number of output channels of each convolution.
        strides: Stride of each convolution, in cells.
        hidden_size: Number of units of the dense layer.
        head_crop: Width and height of the crop around the own head, an odd number of cells; 0 for
            no crop.
        head_plane: Index of the plane with its maximum at the own head; None disables the crop.
        global_pool: If True, the dense layer receives the mean and the maximum of each channel over
            the board instead of all cells. The weights then fit every board size.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        channels: Sequence[int],
        strides: Sequence[int],
        hidden_size: int,
        head_crop: int,
        head_plane: int | None,
        global_pool: bool = False,
    ) -> None:
        super().__init__()
        if len(channels) != len(strides) or not channels:
            raise ValueError(
                "channels and strides must have one number per convolution, "
                f"got {channels} and {strides}"
            )
        if min(*channels, *strides, hidden_size) < 1:
            raise ValueError(
                f"channels {channels}, strides {strides} and hidden_size {hidden_size} must be at "
                "least 1"
            )
        if head_crop and head_crop % 2 == 0:
            raise ValueError(f"head_crop must be an odd number, or 0 for no crop, got {head_crop}")
        self.hidden_size = hidden_size
        self.head_plane = head_plane
        self.head_crop = 0 if head_plane is None else head_crop
        previous, *sides = shape
        layers: list[nn.Module] = []
        for count, stride in zip(channels, strides, strict=True):
            layers += [nn.Conv2d(previous, count, 3, stride, padding=1), nn.ReLU()]
            previous = count
            sides = [(side - 1) // stride + 1 for side in sides]
        self.global_pool = global_pool
        last = _GlobalPool() if global_pool else _ChannelsLastFlatten()
        self.convolutions = nn.Sequential(*layers, last)
        far = previous * (2 if global_pool else sides[0] * sides[1])
        near = shape[0] * self.head_crop**2
        self.dense = nn.Linear(far + near, hidden_size)
        # On CPUs, the channels-last order makes bfloat16 convolutions 20% faster.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, planes: Tensor) -> Tensor:
        """Return the features of a batch of observations, float (B, ``hidden_size``).

        The network maps byte 255 to 1.0.
        """
        return self.features_from(*self.prepare_input(planes))

    def prepare_input(self, planes: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the arguments of `features_from`.

        The arguments are the scaled planes, and the crop around the own head. Several trunks with
        the same settings can share these arguments.
        """
        device = planes.device.type
        half = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if half else torch.float32
        # Reordering, cropping and argmax are three times as fast on bytes as on float32.
        planes = planes.contiguous(memory_format=torch.channels_last)
        scaled = planes.to(dtype).div_(255)
        if not self.head_crop:
            return scaled, None
        heads = planes[:, self.head_plane].flatten(1).argmax(1)
        width = planes.shape[3]
        rows = heads // width
        # The ONNX exporter does not support % with a variable width.
        near = _crop_around(planes, rows, heads - rows * width, self.head_crop)
        return scaled, near.to(dtype).div_(255)

    def features_from(self, scaled: Tensor, near: Tensor | None) -> Tensor:
        """Return the features, float (B, ``hidden_size``).

        The arguments are the results of `prepare_input`.
        """
        features: Tensor = self.convolutions(scaled)
        if near is None:
            return torch.relu(self.dense(features))
        combined = torch.cat((features.detach(), near), dim=1)
        if not features.requires_grad:
            return torch.relu(self.dense(combined))
        dense = self.dense
        hidden: Tensor = _DenseWithCrop.apply(features, combined, dense.weight, dense.bias)  # type: ignore[no-untyped-call]
        return torch.relu(hidden)


class DuelingQNetwork(nn.Module):
    """Q-network that maps uint8 (B, C, H, W) to Q-values, float32 (B, actions).

    If ``dueling`` is False, the network has one head that returns the Q-values directly.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        num_actions: int = 4,
        *,
        dueling: bool = True,
        **trunk: Any,
    ) -> None:
        super().__init__()
        self.trunk = ConvTrunk(shape, **trunk)
        self.value = nn.Linear(self.trunk.hidden_size, 1) if dueling else None
        self.advantage = nn.Linear(self.trunk.hidden_size, num_actions)

    def forward(self, planes: Tensor) -> Tensor:
        """Return Q-values, float32 (B, actions): the state value plus centered advantages."""
        return self.q_values_from(*self.trunk.prepare_input(planes))

    def q_values_from(self, scaled: Tensor, near: Tensor | None) -> Tensor:
        """Return Q-values, float32 (B, actions).

        The arguments are the results of the trunk's `prepare_input`.
        """
        features = self.trunk.features_from(scaled, near).float()
        # The heads use full precision, because the differences of Q-values are small relative to
        # the Q-values.
        with torch.autocast(scaled.device.type, enabled=False):
            advantage: Tensor = self.advantage(features)
            if self.value is None:
                return advantage
            q_values: Tensor = self.value(features) + advantage - advantage.mean(-1, keepdim=True)
        return q_values


_CPU_CHUNK_SIZE = 512
"""Number of observations per forward pass on a CPU.

With 512 observations, the output of a layer fits the CPU's cache.
"""

POLY_DECAY_ETA = 3
"""Exponent of the weight average.

Larger values increase the weight of late updates. Half of the average stems from the last sixth of
training. The method is polynomial-decay averaging (Shamir & Zhang 2013,
https://arxiv.org/abs/1212.1824).
"""


class _WeightAverage(AveragedModel):
    """Running average of a network's weights.

    The integer ``num_updates`` is the number of averaged updates. To read the tensor ``n_averaged``
    instead, the process would have to wait for the GPU.
    """

    num_updates = 0


def _restore_num_updates(mean: _WeightAverage, _: object = None) -> None:
    """Set ``mean.num_updates`` from the tensor of a loaded state."""
    mean.num_updates = int(mean.n_averaged)


class WeightAveragingMixin(InferenceOnlyAPI):  # type: ignore[misc]
    """Mixin for modules that average the weights of their ``network`` for export.

    With the current weights, the strength of greedy play fluctuates by about 10% within a minute.
    Policies with averaged weights are far stronger.
    """

    network: nn.Module
    mean: _WeightAverage

    def init_average(self) -> None:
        """Initialize the weight average; only modules of a learner have a weight average."""
        self.mean = _WeightAverage(self.network)
        self.mean.requires_grad_(False)
        self._weights: list[Tensor] = list(self.network.parameters())
        self._means: list[Tensor] = list(self.mean.module.parameters())
        self.mean.register_load_state_dict_post_hook(_restore_num_updates)  # type: ignore[no-untyped-call]

    @property
    def inference_network(self) -> nn.Module:
        """Return the network to export.

        The network is the weight average, or the current network if no average exists.
        """
        has_average = not self.inference_only and self.mean.num_updates > 0
        network: nn.Module = self.mean.module if has_average else self.network
        return network

    def update_average(self) -> None:
        """Add the network's current weights to the weight average.

        `AveragedModel.update_parameters` would compute the same average, but first sort all weights
        by device.
        """
        share = (POLY_DECAY_ETA + 1) / (self.mean.num_updates + 1 + POLY_DECAY_ETA)
        self.mean.num_updates += 1
        with torch.no_grad():
            torch._foreach_lerp_(self._means, self._weights, share)
            for kept, buffer in zip(
                self.mean.module.buffers(), self.network.buffers(), strict=True
            ):
                kept.copy_(buffer)
            self.mean.n_averaged.add_(1)

    def train(self, mode: bool = True) -> Any:
        """Set the training mode, unless the module already has this mode.

        RLlib calls this method before every update. Torch's method would visit all modules each
        time.
        """
        return self if self.training == mode else super().train(mode)

    def get_non_inference_attributes(self) -> list[str]:
        """Return the names of the attributes that only a learner needs."""
        return ["mean"]


class SnakeQModule(WeightAveragingMixin, TorchRLModule, QNetAPI, TargetNetworkAPI):  # type: ignore[misc]
    """RLlib module with a Q-network, a target network and a weight average.

    RLlib's double DQN learner requires the target network. Subclasses may build another network.
    ``model_config`` contains these settings:

    * the arguments of `ConvTrunk`;
    * ``dueling``: whether the network has a dueling head;
    * ``bfloat16``: True, False, or "auto" (True if the processor supports bfloat16 natively).
    """

    def setup(self) -> None:
        """Build the Q-network; the learner later calls `make_target_networks`."""
        self.network = self.build_network(self.observation_space.shape, int(self.action_space.n))
        if not self.inference_only:
            self.init_average()

    def build_network(self, shape: tuple[int, int, int], num_actions: int) -> nn.Module:
        """Build a network that maps uint8 (B, C, H, W) to float32 (B, actions)."""
        return make_network(
            DuelingQNetwork, shape, num_actions, network_settings(self.model_config)
        )

    def make_target_networks(self) -> None:
        """Create the target network as a copy of the Q-network."""
        self.target_network = make_target_network(self.network)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return the pair of Q-network and target network, as a list with one element."""
        return [(self.network, self.target_network)]

    def get_non_inference_attributes(self) -> list[str]:
        """Return the names of the attributes that only a learner needs."""
        return ["target_network", *super().get_non_inference_attributes()]

    def compute_q_values(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the Q-values of the online network, float32 (B, actions)."""
        return {QF_PREDS: self._compute_q_values_of(batch[Columns.OBS], self.network)[0]}

    def forward_target(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the Q-values of the target network, float32 (B, actions)."""
        return {QF_PREDS: self._compute_q_values_of(batch[Columns.OBS], self.target_network)[0]}

    def _forward(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return Q-values and the best moves."""
        (q_values,) = self._compute_q_values_of(batch[Columns.OBS], self.inference_network)
        return {QF_PREDS: q_values, Columns.ACTIONS: q_values.argmax(-1)}

    def _forward_train(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return the Q-values of the states and of the next states.

        Both networks evaluate the next states. In the next states, a masked move has the Q-value
        -infinity.
        """
        outputs = self.compute_q_values(batch)
        with torch.no_grad():
            q_next, q_target_next = self._compute_q_values_of(
                batch[Columns.NEXT_OBS], self.network, self.target_network
            )
        if NEW_ACTION_MASK in batch:
            forbidden = ~batch[NEW_ACTION_MASK].bool()
            q_next = q_next.masked_fill(forbidden, -torch.inf)
            q_target_next = q_target_next.masked_fill(forbidden, -torch.inf)
        return outputs | {QF_NEXT_PREDS: q_next, QF_TARGET_NEXT_PREDS: q_target_next}

    def _compute_q_values_of(self, planes: Tensor, *networks: nn.Module) -> list[Tensor]:
        """Return the Q-values of several networks that have the same trunk settings.

        The method prepares the input of the trunks only once.
        """
        enabled = uses_bfloat16(self.model_config, planes.device)
        on_cpu = planes.device.type == "cpu"
        parts = torch.split(planes, _CPU_CHUNK_SIZE) if on_cpu else (planes,)
        with torch.autocast(planes.device.type, torch.bfloat16, enabled=enabled):
            first = networks[0]
            if not isinstance(first, DuelingQNetwork):
                return [torch.cat([one(part).float() for part in parts]) for one in networks]
            seen = [first.trunk.prepare_input(part) for part in parts]
            return [
                torch.cat([network.q_values_from(*part) for part in seen])
                for network in networks
                if isinstance(network, DuelingQNetwork)
            ]
