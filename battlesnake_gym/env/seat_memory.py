"""Recurrent states of policies at the seats of a vector environment.

A recurrent policy is a callable with the attribute ``state_size``. The policy receives its states,
float32 [B, state_size], after its other arguments, and returns its result and the next states. The
state at the start of a game is zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import policy_file

if TYPE_CHECKING:
    from battlesnake_gym.env.vector import VectorBattlesnake

States = NDArray[np.float32]
"""Recurrent states, float32 [B, state_size]."""

ActFn = Callable[[NDArray[np.uint8], NDArray[np.bool_]], Any]
"""Function from observations uint8 [B, C, H, W] and masks bool [B, 4] to actions.

The actions are indices into `rules.MOVES`, integers [B]. A recurrent policy follows this module.
"""

ScoreFn = Callable[..., Any]
"""Function from observations, uint8 [B, C, H, W], to action scores, float32 [B, 4].

Higher scores are better. A recurrent policy also receives and returns states.
"""


@dataclass(frozen=True)
class RecurrentPolicy:
    """Recurrent policy that calls a function.

    Attributes:
        call: Function that returns its result and the next states.
        state_size: Number of floats of a state.
    """

    call: Callable[..., tuple[Any, States]]
    state_size: int

    def __call__(self, *inputs: Any) -> tuple[Any, States]:
        """Return the result and the next states; the last input is the states."""
        return self.call(*inputs)


def score_fn(step: Callable[..., Any], state_size: int) -> ScoreFn:
    """Return a score function for a function that returns scores and the next states.

    Args:
        step: Function of observations, uint8 [B, C, H, W], and of states if there are states.
        state_size: Number of floats of a state.
    """
    return RecurrentPolicy(step, state_size) if state_size else lambda frames: step(frames)[0]


def onnx_score_fn(model: bytes, name: object) -> ScoreFn:
    """Return the score function of a policy's network.

    Args:
        model: Content of the ONNX file.
        name: Name of the file in error messages.

    Raises:
        PolicyError: If onnxruntime cannot read the network.
    """
    session = policy_file.open_session(model, name)
    step = functools.partial(policy_file.run_policy, session)
    return score_fn(step, policy_file.state_size(session))


class SeatMemory:
    """States of one policy at all seats of ``vector``, N games with S seats."""

    def __init__(self, vector: VectorBattlesnake) -> None:
        self._vector = vector
        self._states = np.zeros((vector.num_games, vector.num_snakes, 0), np.float32)
        self._episodes = vector.episodes.copy()

    def states(self, size: int) -> States:
        """Return the states before the current turn, float32 [N, S, size], to read and write."""
        if self._states.shape[2] != size:
            self._states = np.zeros((*self._states.shape[:2], size), np.float32)
        self._states[self._episodes != self._vector.episodes] = 0
        self._episodes[:] = self._vector.episodes
        return self._states

    def call(self, policy: Any, seats: Any, *inputs: Any) -> Any:
        """Return the result of a policy, and remember its next states.

        Args:
            policy: Recurrent or other policy; a policy that is not recurrent gets no states.
            seats: Index of the seats in an array [N, S], in the order of the inputs.
            *inputs: Arguments of the policy.
        """
        size = getattr(policy, "state_size", 0)
        if not size:
            return policy(*inputs)
        states = self.states(size)
        result, states[seats] = policy(*inputs, states[seats])
        return result
