"""A one-turn search, which simulates the next turn."""

from __future__ import annotations

from battlesnake_gym.rules.state import MOVES, Snake
from battlesnake_heuristics.rule_based.pipeline import Preference
from battlesnake_heuristics.rule_based.view import View

_MAX_OPPONENT_DISTANCE = 6
"""Maximum distance, in cells, of opponents that are considered."""


@Preference
def foresight(view: View, move: str) -> float:
    """Claims the most cells after the worst reply of the nearest opponent."""
    near = [
        opponent for opponent in view.opponents if _gap(view, opponent) <= _MAX_OPPONENT_DISTANCE
    ]
    nearest = min(near, key=lambda opponent: _gap(view, opponent), default=None)
    replies = _open_moves(view, nearest) if nearest else [None]
    return min(_value_after(view, move, nearest, reply) for reply in replies)


def _gap(view: View, opponent: Snake) -> int:
    return view.grid.distance(view.you.head, opponent.head)


def _open_moves(view: View, snake: Snake) -> list[str]:
    """Return the moves after which a snake survives the turn.

    The result is ``up`` if no move survives.
    """
    free = view.exits(snake)
    moves = [m for m in MOVES if view.grid.bit(view.grid.step(snake.head, m)) & free]
    return moves or ["up"]


def _value_after(view: View, move: str, opponent: Snake | None, reply: str | None) -> float:
    """Return the claimed fraction of the board after the turn.

    The value is negative if the snake dies.
    """
    board = view.board.without_seed()
    moves = {snake.id: _open_moves(view, snake)[0] for snake in view.opponents}
    moves[view.you.id] = move
    if opponent and reply:
        moves[opponent.id] = reply
    board.step(moves)
    if not board.you.alive:
        return -1.0
    after = View(board)
    if not after.exits(after.you):
        return -0.5
    return after.territories()[0].bit_count() / after.grid.everything.bit_count()
