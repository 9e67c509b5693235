"""The Q-network: uint8 planes in, four Q-values out, as an RLlib module.

Three 3x3 convolutions (32, 64, 64 channels; strides 2, 2, 1) see the whole board, a glimpse shows
the cells around the own head one by one; a dense layer of 256 and a dueling head join the two. The
same trunk serves every board size; a checkpoint belongs to one size.
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

from battlesnake_gym.common import extensions

NETWORK = "network."
"""What the names of the network's weights begin with, in a module's state."""

MODULE_APIS = (QNetAPI, TargetNetworkAPI)
"""What the loops of DQN and APEX ask of a module."""

NEW_ACTION_MASK = "new_action_mask"
"""Batch column (B, 4) bool: the moves allowed in the next state. Optional; absent means all."""

OBSERVATIONS, ACTION_MASK = "observations", "action_mask"
"""The parts of an observation, or of the space of them, where the environment masks moves."""


def split_observation(observation: Any) -> tuple[Any, Any]:
    """Planes and action mask of an observation; the mask is None where there is none."""
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
"""A ``model_config``'s part that is about the trunk, with the defaults."""


def crop_around(planes: Tensor, rows: Tensor, columns: Tensor, side: int) -> Tensor:
    """The cells around (``rows``, ``columns``): (B, side * side * C); zeros off the planes."""
    margin = side // 2
    padded = nn.functional.pad(planes.permute(0, 2, 3, 1), (0, 0, *(margin,) * 4))
    boards, height, width, count = padded.shape
    window = torch.arange(side, device=planes.device)
    offsets = (window[:, None] * width + window).flatten()
    firsts = torch.arange(boards, device=planes.device) * (height * width) + rows * width + columns
    cells = firsts[:, None] + offsets
    return padded.reshape(-1, count).index_select(0, cells.flatten()).reshape(boards, -1)


def trunk_settings(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `ConvTrunk` in a ``model_config``."""
    return {key: model_config.get(key, default) for key, default in TRUNK_DEFAULTS.items()}


def network_settings(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides how the network of a ``model_config`` is built, besides its shape."""
    if own := model_config.get("network"):
        return {"network": own}
    settings = trunk_settings(model_config)
    return settings if model_config.get("dueling", True) else settings | {"dueling": False}


def build(
    kind: Callable[..., nn.Module], shape: Sequence[int], actions: int, settings: Mapping[str, Any]
) -> nn.Module:
    """The network of these `network_settings`: ``kind``, or your own one.

    Raises ``ValueError`` where there is no such class, or it is no network.
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
    """Build the network of a ``model_config`` and ask it; ``ValueError`` says what is wrong."""
    settings = network_settings(model_config)
    try:
        with torch.no_grad():
            answer = build(kind, shape, 4, settings).eval()(
                torch.zeros((2, *shape), dtype=torch.uint8)
            )
    except Exception as error:
        raise ValueError(
            f"model_config makes no network for observations {tuple(shape)}: {error}; it has "
            f"{settings}"
        ) from error
    if getattr(answer, "shape", None) != (2, 4):
        got = getattr(answer, "shape", type(answer).__name__)
        raise ValueError(f"the network of {settings} must give [batch, 4], got {got} of 2")


def bfloat16_pays(device: torch.device) -> bool:
    """Whether bfloat16 arithmetic is native on ``device``; elsewhere it is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def uses_bfloat16(model_config: Mapping[str, Any], device: torch.device) -> bool:
    """What a ``model_config``'s ``bfloat16`` means on ``device``."""
    choice = model_config.get("bfloat16", "auto")
    return bfloat16_pays(device) if choice == "auto" else bool(choice)


class _Flatten(nn.Flatten):
    """Its gradient goes back in the channels' order of what was flattened.

    In any other order the gradient of the ReLU before it takes several times as long.
    """

    def forward(self, features: Tensor) -> Tensor:
        if features.requires_grad:
            features.register_hook(_channels_last)  # type: ignore[no-untyped-call]
        return super().forward(features)


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


class ConvTrunk(nn.Module):
    """Features of a board: (B, C, H, W) uint8 to (B, ``width``) float.

    ``head_plane`` is the plane that is brightest at the own head; the ``glimpse`` x ``glimpse``
    cells around it (an odd number; cells off the board are zeros) go to the dense layer as they
    are. The strides blur just these cells, and most moves are decided by them. Without a
    ``head_plane``, or with a ``glimpse`` of 0, convolutions have to do.
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
        # On CPUs this order of the channels makes bfloat16 convolutions a fifth faster.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, planes: Tensor) -> Tensor:
        """Features of a batch of boards; 255 means 1."""
        return self.features_from(*self.prepare_input(planes))

    def prepare_input(self, planes: Tensor) -> tuple[Tensor, Tensor | None]:
        """What `features_from` needs, and what other trunks with the same glimpse can think about too."""
        device = planes.device.type
        half = torch.is_autocast_enabled(device)
        scaled = planes.to(torch.get_autocast_dtype(device) if half else torch.float32) / 255
        scaled = scaled.contiguous(memory_format=torch.channels_last)
        if not self.head_crop:
            return scaled, None
        # Bytes are compared three times as fast as what they are scaled to.
        heads = planes[:, self.head_plane].flatten(1).argmax(1)
        width = planes.shape[3]
        return scaled, crop_around(scaled, heads // width, heads % width, self.head_crop)

    def features_from(self, scaled: Tensor, near: Tensor | None) -> Tensor:
        """Features of what `look` saw."""
        features: Tensor = self.convolutions(scaled)
        if near is not None:
            features = torch.cat((features, near), dim=1)
        return torch.relu(self.dense(features))


class DuelingQNetwork(nn.Module):
    """Q-values: (B, C, H, W) uint8 to (B, actions) float32. Not ``dueling``, it has one head."""

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
        """Value of the position plus what each move is better or worse than their mean."""
        return self.q_values_from(*self.trunk.prepare_input(planes))

    def q_values_from(self, scaled: Tensor, near: Tensor | None) -> Tensor:
        """The Q-values of what the trunk's `look`, or an equal trunk's, has seen."""
        features = self.trunk.features_from(scaled, near).float()
        # The head keeps full precision: the differences it learns are small beside the values.
        with torch.autocast(scaled.device.type, enabled=False):
            advantage: Tensor = self.advantage(features)
            if self.value is None:
                return advantage
            q_values: Tensor = self.value(features) + advantage - advantage.mean(-1, keepdim=True)
        return q_values


_CPU_CHUNK_SIZE = 512
"""A batch goes through the network in such parts, so that a layer's results stay in the cache."""

POLY_DECAY_ETA = 3
"""How much more the mean of all weights takes from late updates: half of it is from the last sixth
of training (Shamir & Zhang 2013, polynomial-decay averaging, https://arxiv.org/abs/1212.1824)."""


class WeightAverage(AveragedModel):
    """The mean of a network's weights; ``count`` of them, as Python has it.

    Looking at ``n_averaged`` would wait for a GPU.
    """

    count = 0


def _count(mean: WeightAverage, _: object = None) -> None:
    mean.count = int(mean.n_averaged)


class WeightAveragingMixin(InferenceOnlyAPI):  # type: ignore[misc]
    """A module that keeps the mean of the weights of its ``network``, which is what is exported.

    The network never settles: from one minute to the next its greedy play gains or loses a tenth.
    The mean of what it has been plays far better than it does.
    """

    network: nn.Module
    mean: WeightAverage

    def init_average(self) -> None:
        """Begin the mean of the network; only the learner has one."""
        self.mean = WeightAverage(self.network)
        self.mean.requires_grad_(False)
        self._weights: list[Tensor] = list(self.network.parameters())
        self._means: list[Tensor] = list(self.mean.module.parameters())
        self.mean.register_load_state_dict_post_hook(_count)  # type: ignore[no-untyped-call]

    @property
    def inference_network(self: Any) -> nn.Module:
        """What is exported and plays: the mean of the weights, where this module has one."""
        if self.inference_only or not self.mean.count:
            network: nn.Module = self.network
            return network
        mean: nn.Module = self.mean.module
        return mean

    def update_average(self) -> None:
        """Take the network's weights, as they are now, into their mean.

        `AveragedModel.update_parameters` does the same, but first sorts all weights by device.
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
        """Only the learner has a mean."""
        return ["mean"]


class SnakeQModule(WeightAveragingMixin, TorchRLModule, QNetAPI, TargetNetworkAPI):  # type: ignore[misc]
    """The Q-network, its target for RLlib's double DQN learner, and the mean of its weights.

    ``model_config``: what `ConvTrunk` takes; ``dueling``; ``bfloat16``: ``"auto"`` (where the
    processor has it), ``True`` or ``False``. Subclasses may build another network.
    """

    def setup(self) -> None:
        """Build the network (the learner asks for the target later)."""
        planes = split_observation(self.observation_space)[0]
        self.network = self.build_network(planes.shape, int(self.action_space.n))
        if not self.inference_only:
            self.init_average()

    def build_network(self, shape: tuple[int, int, int], num_actions: int) -> nn.Module:
        """What is trained and played: (B, C, H, W) uint8 to (B, actions) float32."""
        return build(DuelingQNetwork, shape, num_actions, network_settings(self.model_config))

    def train(self, mode: bool = True) -> SnakeQModule:
        """RLlib asks for this before every update, and torch would visit forty modules."""
        return self if self.training == mode else super().train(mode)

    def make_target_networks(self) -> None:
        """Copy the network."""
        self.target_network = make_target_network(self.network)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """What the learner copies over now and then."""
        return [(self.network, self.target_network)]

    def get_non_inference_attributes(self) -> list[str]:
        """Only the learner has a target and a mean."""
        return ["target_network", *super().get_non_inference_attributes()]

    def compute_q_values(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Q-values of the online network."""
        planes = split_observation(batch[Columns.OBS])[0]
        return {QF_PREDS: self._run(planes, self.network)[0]}

    def forward_target(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Q-values of the target network."""
        planes = split_observation(batch[Columns.OBS])[0]
        return {QF_PREDS: self._run(planes, self.target_network)[0]}

    def _forward(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """The best allowed moves."""
        planes, mask = split_observation(batch[Columns.OBS])
        (q_values,) = self._run(planes, self.inference_network)
        if mask is not None:
            q_values = q_values.masked_fill(~mask.bool(), -torch.inf)
        return {QF_PREDS: q_values, Columns.ACTIONS: q_values.argmax(-1)}

    def _forward_train(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Q-values now, and of both networks in the next state, forbidden moves at -infinity."""
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
        """The Q-values of each of the networks, which are alike and look at the boards but once."""
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
