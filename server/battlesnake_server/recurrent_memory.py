"""Recurrent state of a policy for one snake in one game, correct for late and repeated requests."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.policy_file import OnnxPolicy

_MAX_TURNS = 6
"""Number of latest turns whose observations are stored."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """Observation of one turn, uint8 [C, H, W], and the policy's result.

    The result contains the scores, float32 [1, 4], and the state after the turn; it is None until
    the policy has been called.
    """

    frames: NDArray[np.uint8]
    result: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None


class RecurrentMemory:
    """Recurrent state of a policy for one snake in one game.

    The order of the requests has no effect on later moves. If a late request arrives, the states
    after its turn are computed again from the stored observations. A request that is older than all
    stored turns is answered from the zero state. After a restart of the server, the state is zero
    at the first request; the log reports such a game once.
    """

    def __init__(self, policy: OnnxPolicy) -> None:
        self._policy = policy
        self._turns: dict[int, _Turn] = {}

    def action_scores(self, board: Board, frames: NDArray[np.uint8], seconds: float | None) -> Any:
        """Return the scores of the moves, float32 [4].

        Args:
            board: Position, which determines the turn.
            frames: Observation of ``board.you``, uint8 [C, H, W].
            seconds: Timeout of one network call in seconds; None selects 60 s.
        """
        policy, turns, turn = self._policy, self._turns, board.turn
        if not policy.state_size:
            return policy.action_scores(frames[np.newaxis], seconds)[0]
        if not turns and turn > 0:
            log.warning(
                "game %s: the first request has turn %d; the policy's memory of earlier turns is "
                "empty",
                format_value(board.game.id),
                turn,
            )
        is_known = turn in turns and np.array_equal(turns[turn].frames, frames)
        if not is_known and len(turns) == _MAX_TURNS and turn <= min(turns):
            return policy.action_scores(frames[np.newaxis], seconds)[0]
        if not is_known:
            turns[turn] = _Turn(frames.copy())
            for later in turns.keys() - range(turn):
                turns[later].result = None
        state = np.zeros((1, policy.state_size), np.float32)
        for number in sorted(one for one in turns if one <= turn):
            stored = turns[number]
            if stored.result is None:
                stored.result = policy.step(stored.frames[np.newaxis], state, seconds)
            scores, state = stored.result
        if len(turns) > _MAX_TURNS:
            del turns[min(turns)]
        return scores[0]
