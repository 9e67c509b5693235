"""The fallback move; the safe filters find this move in less than a millisecond."""

from __future__ import annotations

from dataclasses import replace

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.rule_based.filters import SAFE
from battlesnake_heuristics.rule_based.pipeline import best_after_filters

FALLBACK_RULE = "fallback"
"""Rule name of the first reason of a fallback decision."""

TIMEOUT_NOTE = "the strategy missed the deadline"
"""Note of a fallback decision after a missed deadline."""

_MAX_NORMAL_CELLS, _MAX_NORMAL_SNAKES = 25 * 25, 16
"""Maximum number of cells and of snakes of a normal game."""


def is_normal_size(board: Board) -> bool:
    """Return whether rules can evaluate ``board`` within milliseconds."""
    return (
        board.width * board.height <= _MAX_NORMAL_CELLS and len(board.snakes) <= _MAX_NORMAL_SNAKES
    )


def choose_fallback_move(board: Board, reason: str) -> Decision:
    """Return the move with the most exits among the moves that the safe filters allow.

    On boards larger than `is_normal_size` permits, only the adjacent cells are examined. The
    function never raises an exception.

    Args:
        board: Position, with ``you`` set.
        reason: Reason for the fallback, stored as the note of the decision.
    """
    try:
        moves = board.safe_moves() or MOVES
        exits = {move: float(_count_exits(board, move)) for move in moves}
        if is_normal_size(board):
            decision = best_after_filters(exits, board, SAFE)
        else:
            decision = Decision(max(exits, key=exits.__getitem__), scores=exits)
    # The fallback must return a move: an engine punishes a missing move more than a bad move.
    except Exception:
        decision = Decision(MOVES[0])
    return replace(decision, reasons=(Reason(FALLBACK_RULE, note=reason), *decision.reasons))


def _count_exits(board: Board, move: str) -> int:
    """Count the free cells next to the cell that ``move`` leads to."""
    taken = {cell for snake in board.living for cell in snake.body[:-1]}
    cell = board.target(board.you.head, move)
    around = [board.target(cell, direction) for direction in MOVES]
    return sum(board.inside(beside) and beside not in taken for beside in around)
