"""One-turn search: a preference that simulates the next turn."""

from __future__ import annotations

from battlesnake_gym.rules.state import MOVES, Snake
from battlesnake_heuristics.rule_based.pipeline import Preference
from battlesnake_heuristics.rule_based.view import View

_MAX_OPPONENT_DISTANCE = 6
"""Maximum distance of an opponent whose replies are simulated, in cells."""


@Preference
def foresight(view: View, move: str) -> float:
    """Claims the largest territory after the worst reply of the nearest opponent."""
    near = [
        opponent
        for opponent in view.opponents
        if _head_distance(view, opponent) <= _MAX_OPPONENT_DISTANCE
    ]
    nearest = min(near, key=lambda opponent: _head_distance(view, opponent), default=None)
    replies = _surviving_moves(view, nearest) if nearest else [None]
    return min(_evaluate_moves(view, move, nearest, reply) for reply in replies)


def _head_distance(view: View, opponent: Snake) -> int:
    """Return the distance between the heads of ``view.you`` and an opponent, in cells."""
    return view.grid.distance(view.you.head, opponent.head)


def _surviving_moves(view: View, snake: Snake) -> list[str]:
    """Return the moves to cells that the snake can enter on the next turn.

    The result is ``["up"]`` if the snake cannot enter any cell.
    """
    free = view.exits(snake)
    moves = [m for m in MOVES if view.grid.bit(view.grid.step(snake.head, m)) & free]
    return moves or ["up"]


def _evaluate_moves(view: View, move: str, opponent: Snake | None, reply: str | None) -> float:
    """Return the territory fraction of the board after the turn, in [0, 1].

    The result is -1 if the snake is eliminated, and -0.5 if the snake has no exit afterwards.
    """
    board = view.board.without_seed()
    moves = {snake.id: _surviving_moves(view, snake)[0] for snake in view.opponents}
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
