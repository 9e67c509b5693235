"""Recurrent network with a policy head, and its RLlib module with a value head or a critic.

Axes: ``M`` moves, ``Q`` sequences, ``K`` floats of a recurrent state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from battlesnake_rl.mabs.policy.actor_critic import PolicyNetwork, SnakeActor, mask_logits
from battlesnake_rl.mabs.policy.q_network import (
    ACTION_MASK,
    ConvTrunk,
    network_settings,
    split_observation,
    trunk_settings,
)

COMPLETE_OBS = "complete_obs"
"""Name of a batch column, uint8 (M, C, H, W): observations without a limit of the view."""

SEQUENCES_BY_STEP = "sequences_by_step"
"""Key of a batch: int64 (T,), number of sequences that have more than t moves, on the CPU."""


class RecurrentPolicyNetwork(nn.Module):
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
    return RecurrentPolicyNetwork if "gru_size" in settings else PolicyNetwork


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

    network: RecurrentPolicyNetwork  # type: ignore[assignment]

    def setup(self) -> None:
        """Build the policy network, the critic or value head, and the weight average."""
        shape = split_observation(self.observation_space)[0].shape
        settings = network_settings(self.model_config)
        self.network = RecurrentPolicyNetwork(shape, int(self.action_space.n), **settings)
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
        planes, mask = split_observation(batch[Columns.OBS])
        states = batch[Columns.STATE_IN][Columns.STATE_IN]
        logits, states = self.inference_network(planes, states)
        return {
            Columns.ACTION_DIST_INPUTS: mask_logits(logits, mask),
            Columns.STATE_OUT: {Columns.STATE_IN: states},
        }

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return values and logits of packed sequences (`SEQUENCES_BY_STEP`)."""
        by_step = batch[SEQUENCES_BY_STEP]
        with self.autocast(batch[Columns.OBS]):
            features = self.network.features(batch[Columns.OBS])
        states = batch[Columns.STATE_IN][: int(by_step[0])]
        memory = self.network.remember_sequences(features, states, by_step)
        logits = mask_logits(self.network.policy(memory), batch[ACTION_MASK])
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
