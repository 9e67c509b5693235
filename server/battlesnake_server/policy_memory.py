"""Memory of a policy for one snake in one game, correct for late and repeated requests.

The memory consists of the earlier turns that the observation shows (stacked turns, last sightings)
and of the recurrent state.
"""

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
"""Number of latest turns that are stored."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """Position of one turn, its observation, uint8 [C, H, W], and the policy's result.

    The result contains the scores, float32 [1, 4], and the state after the turn; it is None until
    the policy has been called.
    """

    board: Board
    frames: NDArray[np.uint8]
    result: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None


class PolicyMemory:
    """Earlier observations and recurrent state of a policy for one snake in one game.

    The order of the requests has no effect on later moves. If a late request arrives, the
    observations and states after its turn are computed again from the stored positions. A request
    that is older than all stored turns is answered without a memory. After a restart of the server,
    the memory is empty at the first request; the log reports such a game once.
    """

    def __init__(self, policy: OnnxPolicy) -> None:
        self._policy = policy
        self._turns: dict[int, _Turn] = {}

    def action_scores(self, board: Board, seconds: float | None) -> Any:
        """Return the scores of the moves of ``board.you``, float32 [4].

        Args:
            board: Position from the perspective of the snake.
            seconds: Timeout of one network call in seconds; None selects 60 s.
        """
        policy, turns, turn = self._policy, self._turns, board.turn
        if not (policy.state_size or policy.observation.depends_on_earlier_turns):
            return policy.action_scores(self._encode(board, None)[np.newaxis], seconds)[0]
        if not turns and turn > 0:
            log.warning(
                "game %s: the first request has turn %d; the policy's memory of earlier turns is "
                "empty",
                format_value(board.game.id),
                turn,
            )
        if turn not in turns or turns[turn].board != board:
            if len(turns) == _MAX_TURNS and turn <= min(turns):
                frames = self._encode(board, None)[np.newaxis]
                return policy.action_scores(frames, seconds)[0]
            self._insert(board)
        state = np.zeros((1, policy.state_size), np.float32)
        for number in sorted(one for one in turns if one <= turn):
            stored = turns[number]
            if stored.result is None:
                stored.result = policy.step(stored.frames[np.newaxis], state, seconds)
            scores, state = stored.result
        if len(turns) > _MAX_TURNS:
            del turns[min(turns)]
        return scores[0]

    def _insert(self, board: Board) -> None:
        """Store a position, and encode its turn and all later turns again."""
        turns = self._turns
        boards = [board.copy(), *(turns[one].board for one in sorted(turns) if one > board.turn)]
        for one in boards:
            earlier = max((number for number in turns if number < one.turn), default=None)
            before = None if earlier is None else turns[earlier].frames
            turns[one.turn] = _Turn(one, self._encode(one, before))

    def _encode(self, board: Board, before: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """Return the observation that follows the observation ``before``, uint8 [C, H, W]."""
        policy = self._policy
        shape = policy.observation_shape(board.width, board.height)
        frames = np.zeros(shape, np.uint8) if before is None else before.copy()
        return policy.observation.encode(
            board, board.you.id, frames, view_radius=board.game.settings.view_radius
        )
