"""Policy that plays at seats of a vector environment with one network call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.env.seat_memory import SeatMemory
from battlesnake_gym.mdp import masks

if TYPE_CHECKING:
    from battlesnake_gym.env.vector import VectorBattlesnake
    from battlesnake_gym.policy_file import OnnxPolicy

ActFn = Callable[[NDArray[np.uint8], NDArray[np.bool_]], Any]
"""Function from observations uint8 [B, C, H, W] and masks bool [B, 4] to actions.

The actions are indices into `rules.MOVES`, integers [B]. A recurrent policy follows `seat_memory`.
"""

_MAX_INFERENCE_BATCH = 32
"""Maximum number of observations per inference call.

Larger batches are a third slower per observation, because their activations exceed a CPU cache.
"""


class SeatedPolicy:
    """A policy that plays at seats of a vector environment.

    The policy observes and masks as in its training; the learner's observation may differ. The
    policy selects the allowed move with the highest score.

    Raises:
        ValueError: If the policy does not support the board sizes of ``vector``, or its action mask
            is unknown.
    """

    def __init__(self, policy: OnnxPolicy, vector: VectorBattlesnake) -> None:
        for size in vector.board_sizes:
            policy.check_board_size(*size)
        masks.check_kind(policy.action_mask_kind)
        self._policy, self._vector = policy, vector
        self._memory = SeatMemory(vector)
        self._shape = policy.observation_shape(*map(max, zip(*vector.board_sizes, strict=True)))
        self._mask = np.ones((vector.num_games, vector.num_snakes, 4), np.bool_)
        vector.observe_as(policy.observation, self._shape)

    def moves(self, seats: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the moves of ``seats`` as indices into `rules.MOVES`.

        Args:
            seats: bool [N, S], the seats of living snakes that move.
        """
        policy = self._policy
        observation, facing = policy.observation, self._vector.games.facing[seats]
        self._vector.games.action_mask(policy.action_mask_kind, self._mask)
        mask = observation.relative_mask(self._mask[seats], facing)
        seen = self._vector.observe_as(observation, self._shape)[seats]
        states = self._memory.states(policy.state_size)
        before = states[seats]
        parts = [
            policy.step(seen[i : i + _MAX_INFERENCE_BATCH], before[i : i + _MAX_INFERENCE_BATCH])
            for i in range(0, len(seen), _MAX_INFERENCE_BATCH)
        ]
        scores, states[seats] = map(np.concatenate, zip(*parts, strict=True))
        return observation.absolute_actions(np.where(mask, scores, -np.inf).argmax(1), facing)
