"""Q-network as an RLlib module: uint8 planes to four Q-values.

Three 3x3 convolutions (32, 64, 64 channels; strides 2, 2, 1) cover the whole board. The cells
around the own head (``head_crop``) bypass the convolutions. A dense layer of 256 units and a
dueling head combine both inputs. The class supports every board size, but the weights of a
checkpoint fit one size only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gymnasium.spaces import Box
from ray.rllib.algorithms.dqn.dqn_learner import (
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_TARGET_NEXT_PREDS,
)
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from battlesnake_gym.common import extensions, old_runs

NETWORK = "network."
"""Prefix of the network's weights in a module's state."""

MODULE_APIS = (QNetAPI, TargetNetworkAPI)
"""RLlib APIs that DQN and APEX require of a module."""

NEW_ACTION_MASK = "new_action_mask"
"""Optional batch column, bool (B, 4): action masks of the next states.

Without this column, no move is masked.
"""

OBSERVATIONS, ACTION_MASK = "observations", "action_mask"
"""Keys of an observation, or of its space, if the environment masks moves."""


def split_observation(observation: Any) -> tuple[Any, Any]:
    """Return the planes and the action mask of an observation, or None without a mask."""
    if isinstance(observation, Tensor | Box):
        return observation, None
    return observation[OBSERVATIONS], observation[ACTION_MASK]


TRUNK_DEFAULTS = {
    "channels": (32, 64, 64),
    "strides": (2, 2, 1),
    "hidden_size": 256,
    "head_crop": 7,
    "head_plane": None,
}
"""Settings of the trunk in a ``model_config``, with default values."""


def crop_around(planes: Tensor, rows: Tensor, columns: Tensor, side: int) -> Tensor:
    """Return the cells around (``rows``, ``columns``), with zeros outside the board.

    Args:
        planes: (B, C, H, W).
        rows: int64 (B,).
        columns: int64 (B,).
        side: Width and height of the crop, odd.

    Returns:
        (B, side * side * C), with the dtype of ``planes``.
    """
    margin = side // 2
    padded = nn.functional.pad(planes.permute(0, 2, 3, 1), (0, 0, *(margin,) * 4))
    boards, height, width, count = padded.shape
    window = torch.arange(side, device=planes.device)
    offsets = (window[:, None] * width + window).flatten()
    firsts = torch.arange(boards, device=planes.device) * (height * width) + rows * width + columns
    cells = firsts[:, None] + offsets
    return padded.reshape(-1, count).index_select(0, cells.flatten()).reshape(boards, -1)


def trunk_settings(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ConvTrunk` from a ``model_config``."""
    # Modules in checkpoints of version 0.1 unpickle their settings under the old names.
    settings = old_runs.convert_network_settings(model_config)
    return {key: settings.get(key, default) for key, default in TRUNK_DEFAULTS.items()}


def network_settings(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine the network, except the shapes."""
    if own := model_config.get("network"):
        return {"network": own}
    settings = trunk_settings(model_config)
    return settings if model_config.get("dueling", True) else settings | {"dueling": False}


def build(
    kind: Callable[..., nn.Module], shape: Sequence[int], actions: int, settings: Mapping[str, Any]
) -> nn.Module:
    """Build a network.

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
            f"network {settings['network']} must be a class of torch.nn.Module that takes (shape, "
            f"actions), got {own!r:.80}"
        )
    made: nn.Module = own(tuple(shape), actions)
    return made


def check(kind: Callable[..., nn.Module], shape: Sequence[int], model_config: Any) -> None:
    """Build the network of a ``model_config`` and run it once.

    Raises:
        ValueError: If the network cannot be built or run, or the output has the wrong shape.
    """
    settings = network_settings(model_config)
    try:
        with torch.no_grad():
            answer = build(kind, shape, 4, settings).eval()(
                torch.zeros((2, *shape), dtype=torch.uint8)
            )
    except Exception as error:
        raise ValueError(
            f"model_config has no valid network for observations {tuple(shape)}: {error}; it has "
            f"{settings}"
        ) from error
    if getattr(answer, "shape", None) != (2, 4):
        got = getattr(answer, "shape", type(answer).__name__)
        raise ValueError(
            f"the network of {settings} must return [batch, 4], got {got} for a batch of 2"
        )


def bfloat16_pays(device: torch.device) -> bool:
    """Return whether ``device`` supports bfloat16 natively.

    On other devices, float32 is faster.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def uses_bfloat16(model_config: Mapping[str, Any], device: torch.device) -> bool:
    """Return whether a ``model_config`` uses bfloat16 on ``device``."""
    choice = model_config.get("bfloat16", "auto")
    return bfloat16_pays(device) if choice == "auto" else bool(choice)


class _Flatten(nn.Flatten):
    """Flatten layer whose gradient is in channels-last order.

    In any other order, the gradient of the preceding ReLU takes several times as long.
    """

    def forward(self, features: Tensor) -> Tensor:
        if features.requires_grad:
            features.register_hook(_channels_last)  # type: ignore[no-untyped-call]
        return super().forward(features)


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


class ConvTrunk(nn.Module):
    """Trunk of a network: uint8 (B, C, H, W) to features, float (B, ``hidden_size``).

    Strides blur the cells around the own head, on which most moves depend. The dense layer
    therefore also receives these cells directly.

    Args:
        shape: Shape (C, H, W) of an observation.
        channels: Output channels of each convolution.
        strides: Stride of each convolution.
        hidden_size: Units of the dense layer.
        head_crop: Width and height of the crop around the own head, odd; 0 for no crop.
        head_plane: Index of the plane with its maximum at the own head; None disables the crop.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        channels: Sequence[int],
        strides: Sequence[int],
        hidden_size: int,
        head_crop: int,
        head_plane: int | None,
    ) -> None:
        super().__init__()
        if len(channels) != len(strides) or not channels:
            raise ValueError(
                "channels and strides must have a number for each convolution, "
                f"got {channels} and {strides}"
            )
        if head_crop and head_crop % 2 == 0:
            raise ValueError(f"head_crop must be an odd number, or 0 for none, got {head_crop}")
        self.hidden_size = hidden_size
        self.head_plane = head_plane
        self.head_crop = 0 if head_plane is None else head_crop
        previous, *sides = shape
        layers: list[nn.Module] = []
        for count, stride in zip(channels, strides, strict=True):
            layers += [nn.Conv2d(previous, count, 3, stride, padding=1), nn.ReLU()]
            previous = count
            sides = [(side - 1) // stride + 1 for side in sides]
        self.convolutions = nn.Sequential(*layers, _Flatten())
        far, near = previous * sides[0] * sides[1], shape[0] * self.head_crop**2
        self.dense = nn.Linear(far + near, hidden_size)
        # On CPUs, this memory order makes bfloat16 convolutions 20% faster.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, planes: Tensor) -> Tensor:
        """Return the features of a batch of observations.

        The network scales byte 255 to 1.
        """
        return self.features_from(*self.prepare_input(planes))

    def prepare_input(self, planes: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the input of `features_from`.

        Trunks with the same settings can share this input.
        """
        device = planes.device.type
        half = torch.is_autocast_enabled(device)
        scaled = planes.to(torch.get_autocast_dtype(device) if half else torch.float32) / 255
        scaled = scaled.contiguous(memory_format=torch.channels_last)
        if not self.head_crop:
            return scaled, None
        # argmax is three times as fast on uint8 as on float32.
        heads = planes[:, self.head_plane].flatten(1).argmax(1)
        width = planes.shape[3]
        return scaled, crop_around(scaled, heads // width, heads % width, self.head_crop)

    def features_from(self, scaled: Tensor, near: Tensor | None) -> Tensor:
        """Return the features for the result of `prepare_input`."""
        features: Tensor = self.convolutions(scaled)
        if near is not None:
            features = torch.cat((features, near), dim=1)
        return torch.relu(self.dense(features))


class DuelingQNetwork(nn.Module):
    """Q-network: uint8 (B, C, H, W) to Q-values, float32 (B, actions).

    Without ``dueling``, the network has a single head.
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
        """Return Q-values: the state value plus centered advantages."""
        return self.q_values_from(*self.trunk.prepare_input(planes))

    def q_values_from(self, scaled: Tensor, near: Tensor | None) -> Tensor:
        """Return Q-values for the result of the trunk's `prepare_input`."""
        features = self.trunk.features_from(scaled, near).float()
        # The head uses full precision, because the differences of Q-values are small relative to
        # the Q-values.
        with torch.autocast(scaled.device.type, enabled=False):
            advantage: Tensor = self.advantage(features)
            if self.value is None:
                return advantage
            q_values: Tensor = self.value(features) + advantage - advantage.mean(-1, keepdim=True)
        return q_values


_CPU_CHUNK_SIZE = 512
"""Positions per forward pass on a CPU.

With this number, the output of a layer fits the CPU's cache.
"""

POLY_DECAY_ETA = 3
"""Exponent of the weight average; larger values give late updates more weight.

Half of the average comes from the last sixth of training. The method is polynomial-decay averaging
(Shamir & Zhang 2013, https://arxiv.org/abs/1212.1824).
"""


class WeightAverage(AveragedModel):
    """Average of a network's weights.

    ``count`` is the number of averaged updates. Reading the tensor ``n_averaged`` would wait for a
    GPU.
    """

    count = 0


def _count(mean: WeightAverage, _: object = None) -> None:
    mean.count = int(mean.n_averaged)


class WeightAveragingMixin(InferenceOnlyAPI):  # type: ignore[misc]
    """Mixin for modules that average the weights of their ``network`` for export.

    The current weights fluctuate: the strength of greedy play changes by about 10% within a minute.
    Policies with averaged weights are far stronger.
    """

    network: nn.Module
    mean: WeightAverage

    def init_average(self) -> None:
        """Initialize the weight average; only the learner calls this method."""
        self.mean = WeightAverage(self.network)
        self.mean.requires_grad_(False)
        self._weights: list[Tensor] = list(self.network.parameters())
        self._means: list[Tensor] = list(self.mean.module.parameters())
        self.mean.register_load_state_dict_post_hook(_count)  # type: ignore[no-untyped-call]

    @property
    def inference_network(self: Any) -> nn.Module:
        """Return the network to export: the weight average, or else the current network."""
        if self.inference_only or not self.mean.count:
            network: nn.Module = self.network
            return network
        mean: nn.Module = self.mean.module
        return mean

    def update_average(self) -> None:
        """Add the network's current weights to the average.

        `AveragedModel.update_parameters` has the same result, but first sorts all weights by
        device.
        """
        share = (POLY_DECAY_ETA + 1) / (self.mean.count + 1 + POLY_DECAY_ETA)
        self.mean.count += 1
        with torch.no_grad():
            torch._foreach_lerp_(self._means, self._weights, share)
            for kept, buffer in zip(
                self.mean.module.buffers(), self.network.buffers(), strict=True
            ):
                kept.copy_(buffer)
            self.mean.n_averaged.add_(1)

    def get_non_inference_attributes(self) -> list[str]:
        """Return the learner's attributes that env runners do not need."""
        return ["mean"]


class SnakeQModule(WeightAveragingMixin, TorchRLModule, QNetAPI, TargetNetworkAPI):  # type: ignore[misc]
    """Q-network, target network for RLlib's double DQN learner, and weight average.

    ``model_config`` has the arguments of `ConvTrunk`; ``dueling``; and ``bfloat16``: True, False,
    or "auto" (if the processor supports it). Subclasses may build another network.
    """

    def setup(self) -> None:
        """Build the network; the learner requests the target network later."""
        planes = split_observation(self.observation_space)[0]
        self.network = self.build_network(planes.shape, int(self.action_space.n))
        if not self.inference_only:
            self.init_average()

    def build_network(self, shape: tuple[int, int, int], num_actions: int) -> nn.Module:
        """Build the network: uint8 (B, C, H, W) to float32 (B, actions)."""
        return build(DuelingQNetwork, shape, num_actions, network_settings(self.model_config))

    def train(self, mode: bool = True) -> SnakeQModule:
        """Set the training mode, unless the mode is already set.

        RLlib calls this method before every update, and torch's method visits all modules.
        """
        return self if self.training == mode else super().train(mode)

    def make_target_networks(self) -> None:
        """Create the target network as a copy of the network."""
        self.target_network = make_target_network(self.network)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return the pairs of network and target network."""
        return [(self.network, self.target_network)]

    def get_non_inference_attributes(self) -> list[str]:
        """Return the learner's attributes that env runners do not need."""
        return ["target_network", *super().get_non_inference_attributes()]

    def compute_q_values(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return Q-values of the online network, float32 (B, actions)."""
        planes = split_observation(batch[Columns.OBS])[0]
        return {QF_PREDS: self._run(planes, self.network)[0]}

    def forward_target(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return Q-values of the target network, float32 (B, actions)."""
        planes = split_observation(batch[Columns.OBS])[0]
        return {QF_PREDS: self._run(planes, self.target_network)[0]}

    def _forward(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return Q-values and the best unmasked moves."""
        planes, mask = split_observation(batch[Columns.OBS])
        (q_values,) = self._run(planes, self.inference_network)
        if mask is not None:
            q_values = q_values.masked_fill(~mask.bool(), -torch.inf)
        return {QF_PREDS: q_values, Columns.ACTIONS: q_values.argmax(-1)}

    def _forward_train(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return Q-values of the state, and of the next state by both networks.

        The Q-values of masked moves in the next state are -infinity.
        """
        outputs = self.compute_q_values(batch)
        planes, mask = split_observation(batch[Columns.NEXT_OBS])
        with torch.no_grad():
            q_next, q_target_next = self._run(planes, self.network, self.target_network)
        mask = batch.get(NEW_ACTION_MASK, mask)
        if mask is not None:
            forbidden = ~mask.bool()
            q_next = q_next.masked_fill(forbidden, -torch.inf)
            q_target_next = q_target_next.masked_fill(forbidden, -torch.inf)
        return outputs | {QF_NEXT_PREDS: q_next, QF_TARGET_NEXT_PREDS: q_target_next}

    def _run(self, planes: Tensor, *networks: nn.Module) -> list[Tensor]:
        """Return the Q-values of several networks with the same trunk settings.

        The trunk's input is prepared once for all networks.
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
