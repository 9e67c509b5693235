"""Looking one turn ahead by playing it."""

from __future__ import annotations

from battlesnake_gym.rules.state import MOVES, Snake
from battlesnake_heuristics.rule_based.pipeline import Preference
from battlesnake_heuristics.rule_based.view import View

_MAX_OPPONENT_DISTANCE = 6
"""A rival whose head is further away than this cannot matter on the next turn."""


@Preference
def foresight(view: View, move: str) -> float:
    """Claims the most cells after the worst answer of the nearest rival."""
    near = [rival for rival in view.rivals if _gap(view, rival) <= _MAX_OPPONENT_DISTANCE]
    nearest = min(near, key=lambda rival: _gap(view, rival), default=None)
    answers = _open_moves(view, nearest) if nearest else [None]
    return min(_value_after(view, move, nearest, answer) for answer in answers)


def _gap(view: View, rival: Snake) -> int:
    return view.grid.distance(view.you.head, rival.head)


def _open_moves(view: View, snake: Snake) -> list[str]:
    """The moves of a snake that do not kill it at once; straight into death if there is none."""
    free = view.exits(snake)
    moves = [m for m in MOVES if view.grid.bit(view.grid.step(snake.head, m)) & free]
    return moves or ["up"]


def _value_after(view: View, move: str, rival: Snake | None, answer: str | None) -> float:
    """The share of the board that is claimed after the turn; below 0 for death."""
    board = view.board.without_seed()
    moves = {snake.id: _open_moves(view, snake)[0] for snake in view.rivals}
    moves[view.you.id] = move
    if rival and answer:
        moves[rival.id] = answer
    board.step(moves)
    if not board.you.alive:
        return -1.0
    after = View(board)
    if not after.exits(after.you):
        return -0.5
    return after.territories()[0].bit_count() / after.grid.everything.bit_count()
