"""Networks with a policy head and a value head.

PPO, RECURRENT_PPO, DISTIL and RLlib's own algorithms use these networks.

Axes: ``B`` batch, ``M`` moves, ``Q`` sequences, ``K`` floats of a recurrent state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from battlesnake_rl.mabs.policy.q_network import (
    ACTION_MASK,
    OBSERVATIONS,
    ConvTrunk,
    WeightAveragingMixin,
    make_network,
    network_settings,
    trunk_settings,
    uses_bfloat16,
)

_VALUE_CHUNK_SIZE = 1024
"""Maximum number of observations per forward pass when no gradients are computed."""


def _split_observation(observation: Any) -> tuple[Any, Any]:
    """Return the planes and the action mask of an observation.

    The function also splits an observation space. The mask is None if the environment masks no
    moves.
    """
    if isinstance(observation, Tensor | Box):
        return observation, None
    return observation[OBSERVATIONS], observation[ACTION_MASK]


class _PolicyNetwork(nn.Module):
    """Policy network that maps uint8 (B, C, H, W) to logits, float32 (B, actions)."""

    def __init__(self, shape: tuple[int, int, int], num_actions: int, **trunk: Any) -> None:
        super().__init__()
        self.trunk = ConvTrunk(shape, **trunk)
        self.policy = nn.Linear(self.trunk.hidden_size, num_actions)

    def forward(self, planes: Tensor) -> Tensor:
        """Return the logits, float32 (B, actions).

        A server plays the move with the highest logit.
        """
        logits: Tensor = self.policy(self.trunk(planes))
        return logits


class SnakeActorCritic(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """RLlib module with a policy head and a value head on one trunk.

    Masked moves have probability 0. ``model_config`` contains the settings of
    `q_network.SnakeQModule`, except ``bfloat16``.
    """

    def setup(self) -> None:
        """Build the policy network and the value head."""
        planes = _split_observation(self.observation_space)[0]
        self.network = _PolicyNetwork(
            planes.shape, int(self.action_space.n), **trunk_settings(self.model_config)
        )
        self.value: nn.Module = nn.Linear(self.network.trunk.hidden_size, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return logits and features.

        A masked move has the lowest float32 value as its logit.
        """
        planes, mask = _split_observation(batch[Columns.OBS])
        embeddings = self.network.trunk(planes)
        logits = _mask_logits(self.network.policy(embeddings), mask)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the observations, float32 (B,).

        If ``embeddings`` is None, the method computes no gradients. Advantage estimation uses this
        mode.
        """
        if embeddings is not None:
            values: Tensor = self.value(embeddings).squeeze(-1)
            return values
        planes, _ = _split_observation(batch[Columns.OBS])
        with torch.no_grad():
            # RLlib passes the whole train batch at once. Smaller chunks limit the memory use.
            parts = [
                self.value(self.network.trunk(part)) for part in planes.split(_VALUE_CHUNK_SIZE)
            ]
        return torch.cat(parts).squeeze(-1)


class SnakeActor(WeightAveragingMixin, SnakeActorCritic):  # type: ignore[misc]
    """`SnakeActorCritic` with an average of the policy's weights, and with bfloat16.

    By default, a processor without native bfloat16 uses float32. A custom network (key ``network``
    of ``model_config``) serves as the policy network. The value network is a second instance of the
    custom class, with one action.
    """

    def setup(self) -> None:
        """Build the policy network, the value network and the weight average."""
        shape = _split_observation(self.observation_space)[0].shape
        settings = network_settings(self.model_config)
        self.network = make_network(_PolicyNetwork, shape, int(self.action_space.n), settings)
        self.value: nn.Module = (
            nn.Linear(self.network.trunk.hidden_size, 1)
            if isinstance(self.network, _PolicyNetwork)
            else make_network(_PolicyNetwork, shape, 1, settings)
        )
        if not self.inference_only:
            self.init_average()

    def logits_and_values(self, planes: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, float32 (B, 4), and values, float32 (B,).

        Args:
            planes: uint8 (B, C, H, W), observations.
        """
        with self.autocast(planes):
            if not isinstance(self.network, _PolicyNetwork):
                return self.network(planes).float(), self.value(planes).float().squeeze(-1)
            features = self.network.trunk(planes)
        # The heads use full precision, as in `DuelingQNetwork`.
        features = features.float()
        return self.network.policy(features), self.value(features).squeeze(-1)

    def evaluate(self, frames: NDArray[np.uint8]) -> tuple[NDArray[np.float32], ...]:
        """Return logits, float32 (B, 4), and values, float32 (B,), as numpy arrays.

        Args:
            frames: uint8 (B, C, H, W), observations; B may be 0.
        """
        if not len(frames):
            return np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
        with torch.inference_mode():
            return tuple(one.numpy() for one in self.logits_and_values(torch.from_numpy(frames)))

    def autocast(self, planes: Tensor) -> torch.autocast:
        """Return a context in which networks use bfloat16 if ``model_config`` enables it."""
        enabled = uses_bfloat16(self.model_config, planes.device)
        return torch.autocast(planes.device.type, torch.bfloat16, enabled=enabled)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return the logits of the weight average.

        A masked move has the lowest float32 value as its logit.
        """
        planes, mask = _split_observation(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: _mask_logits(self.inference_network(planes), mask)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return values and logits.

        A masked move has the lowest float32 value as its logit.
        """
        logits, values = self.logits_and_values(batch[Columns.OBS])
        masked = _mask_logits(logits, batch[ACTION_MASK])
        return {Columns.ACTION_DIST_INPUTS: masked, Columns.VF_PREDS: values}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the observations, float32 (B,), without gradients."""
        with torch.no_grad():
            return self.logits_and_values(_split_observation(batch[Columns.OBS])[0])[1]


def _mask_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Replace the logits of masked moves by the lowest value of the dtype."""
    if mask is None:
        return logits
    return logits.masked_fill(~mask.bool(), torch.finfo(logits.dtype).min)


COMPLETE_OBS = "complete_obs"
"""Name of a batch column, uint8 (M, C, H, W): observations without a limit of the view."""

SEQUENCES_BY_STEP = "sequences_by_step"
"""Key of a batch: int64 (T,), number of sequences that have more than t moves, on the CPU."""


class _RecurrentPolicyNetwork(nn.Module):
    """Policy network with a gated recurrent unit (Cho et al. 2014, arXiv:1406.1078).

    The policy head receives the features of the present position and the recurrent state.

    Args:
        shape: Shape (C, H, W) of an observation.
        num_actions: Number of actions.
        gru_size: Number of floats of a recurrent state.
        **trunk: Arguments of `ConvTrunk`.
    """

    def __init__(
        self, shape: tuple[int, int, int], num_actions: int, *, gru_size: int, **trunk: Any
    ) -> None:
        super().__init__()
        self.state_size = gru_size
        self.trunk = ConvTrunk(shape, **trunk)
        self.norm = nn.LayerNorm(self.trunk.hidden_size)
        self.gru = nn.GRU(self.trunk.hidden_size, gru_size)
        self.policy = nn.Linear(self.trunk.hidden_size + gru_size, num_actions)

    def forward(self, planes: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return logits, float32 (B, actions), and the next states, float32 (B, K).

        Args:
            planes: uint8 (B, C, H, W), observations.
            states: float32 (B, K), states; None for zeros.
        """
        memory, states = self.remember(self.features(planes), states)
        return self.policy(memory), states

    def features(self, planes: Tensor) -> Tensor:
        """Return the normalized features of observations, float32 (B, hidden_size)."""
        features: Tensor = self.trunk(planes).float()
        with torch.autocast(planes.device.type, enabled=False):
            normalized: Tensor = self.norm(features)
        return normalized

    def remember(self, features: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the input of the heads, (B, hidden_size + K), and the next states, (B, K)."""
        if states is None:
            states = features.new_zeros(len(features), self.state_size)
        gru: Any = self.gru
        states = torch.gru_cell(
            features, states, gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0
        )
        return torch.cat((features, states), -1), states

    def remember_sequences(
        self, features: Tensor, states: Tensor, sequences_by_step: Tensor
    ) -> Tensor:
        """Return the inputs of the heads for the moves of sequences, (M, hidden_size + K).

        Args:
            features: (M, hidden_size), ordered by step, then by sequence; longer sequences first.
            states: (Q, K), states before the sequences.
            sequences_by_step: See `SEQUENCES_BY_STEP`.
        """
        packed, _ = self.gru(PackedSequence(features, sequences_by_step), states[None])
        return torch.cat((features, packed.data), -1)


def policy_network_class(settings: Mapping[str, Any]) -> type[nn.Module]:
    """Return the class of the policy network with these settings (`network_settings`)."""
    return _RecurrentPolicyNetwork if "gru_size" in settings else _PolicyNetwork


class _CompleteBoardCritic(nn.Module):
    """Value network that sees the complete board (asymmetric actor-critic, Pinto et al. 2018).

    Only the training uses the network (https://arxiv.org/abs/1710.06542).
    """

    def __init__(self, shape: tuple[int, int, int], **trunk: Any) -> None:
        super().__init__()
        self.trunk = ConvTrunk(shape, **trunk)
        self.head = nn.Linear(self.trunk.hidden_size, 1)

    def forward(self, planes: Tensor) -> Tensor:
        """Return values, float32 (B,), of complete observations, uint8 (B, C, H, W)."""
        features = self.trunk(planes).float()
        with torch.autocast(planes.device.type, enabled=False):
            values: Tensor = self.head(features).squeeze(-1)
        return values


class RecurrentActor(SnakeActor):
    """`SnakeActor` with a recurrent policy.

    ``model_config`` also contains ``gru_size`` and ``full_board_critic``.
    """

    network: _RecurrentPolicyNetwork  # type: ignore[assignment]

    def setup(self) -> None:
        """Build the policy network, the critic or value head, and the weight average."""
        shape = _split_observation(self.observation_space)[0].shape
        settings = network_settings(self.model_config)
        self.network = _RecurrentPolicyNetwork(shape, int(self.action_space.n), **settings)
        self.value = (
            _CompleteBoardCritic(shape, **trunk_settings(self.model_config))
            if self.model_config["full_board_critic"]
            else nn.Linear(self.network.policy.in_features, 1)
        )
        if not self.inference_only:
            self.init_average()

    def step(
        self, planes: Tensor, states: Tensor, complete: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (B, 4), values (B,) and the next states (B, K), float32.

        Args:
            planes: uint8 (B, C, H, W), observations.
            states: float32 (B, K), states.
            complete: uint8 (B, C, H, W), observations without a limit of the view.
        """
        with self.autocast(planes):
            features = self.network.features(planes)
        memory, states = self.network.remember(features, states)
        return self.network.policy(memory), self._values(memory, complete), states

    def get_initial_state(self) -> dict[str, Tensor]:
        """Return the state at the start of a game, which marks the module as recurrent."""
        return {Columns.STATE_IN: torch.zeros(self.network.state_size)}

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return the logits and the next states of the weight average."""
        planes, mask = _split_observation(batch[Columns.OBS])
        states = batch[Columns.STATE_IN][Columns.STATE_IN]
        logits, states = self.inference_network(planes, states)
        return {
            Columns.ACTION_DIST_INPUTS: _mask_logits(logits, mask),
            Columns.STATE_OUT: {Columns.STATE_IN: states},
        }

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return values and logits of packed sequences (`SEQUENCES_BY_STEP`)."""
        by_step = batch[SEQUENCES_BY_STEP]
        with self.autocast(batch[Columns.OBS]):
            features = self.network.features(batch[Columns.OBS])
        states = batch[Columns.STATE_IN][: int(by_step[0])]
        memory = self.network.remember_sequences(features, states, by_step)
        logits = _mask_logits(self.network.policy(memory), batch[ACTION_MASK])
        values = self._values(memory, batch[COMPLETE_OBS])
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.VF_PREDS: values}

    def _values(self, memory: Tensor, complete: Tensor) -> Tensor:
        """Return the values of the critic, or of the value head, (B,)."""
        if isinstance(self.value, _CompleteBoardCritic):
            with self.autocast(complete):
                values: Tensor = self.value(complete)
            return values
        head: Tensor = self.value(memory).squeeze(-1)
        return head
