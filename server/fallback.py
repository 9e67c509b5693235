"""The move that is always there in time: a careful snake's, found in less than a millisecond."""

from __future__ import annotations

from dataclasses import replace

from battlesnake_gym.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason
from heuristics.filters import SAFE
from heuristics.pipeline import filtered


def safe_move(board: Board, why: str) -> Decision:
    """Choose among the moves that the filters of a careful snake leave the one with most exits.

    ``why`` says what kept the real strategy from answering. Never raises, whatever the board.
    """
    try:
        exits = {move: float(_exits(board, move)) for move in MOVES}
        decision = filtered(exits, board, SAFE)
    except Exception:  # The last resort must answer: an engine punishes silence, not a bad move.
        decision = Decision(MOVES[0])
    return replace(decision, reasons=(Reason("fallback", note=why), *decision.reasons))


def _exits(board: Board, move: str) -> int:
    """How many cells beside the one that ``move`` leads to are free of bodies."""
    taken = {cell for snake in board.living for cell in snake.body[:-1]}
    cell = board.target(board.you.head, move)
    around = [board.target(cell, direction) for direction in MOVES]
    return sum(board.inside(beside) and beside not in taken for beside in around)
