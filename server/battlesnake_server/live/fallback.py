"""The move that is always there in time: a careful snake's, found in less than a millisecond."""

from __future__ import annotations

from dataclasses import replace

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.rule_based.filters import SAFE
from battlesnake_heuristics.rule_based.pipeline import best_after_filters

FALLBACK = "fallback"
"""The first reason of a decision that was made here."""

TIMEOUT_NOTE = "the strategy was not ready in time"
"""Its note where time was short."""

_MAX_NORMAL_CELLS, _MAX_NORMAL_SNAKES = 25 * 25, 16
"""Cells and snakes of the largest boards that games are played on."""


def is_normal_size(board: Board) -> bool:
    """Whether ``board`` is of a size that rules look through in milliseconds."""
    return (
        board.width * board.height <= _MAX_NORMAL_CELLS and len(board.living) <= _MAX_NORMAL_SNAKES
    )


def safe_move(board: Board, why: str) -> Decision:
    """Choose among the moves that the filters of a careful snake leave the one with most exits.

    Boards larger than any game's get no more than a look at the next cells. ``why`` says what kept
    the real strategy from answering. Never raises, whatever the board.
    """
    try:
        moves = board.safe_moves() or MOVES
        exits = {move: float(_exits(board, move)) for move in moves}
        if is_normal_size(board):
            decision = best_after_filters(exits, board, SAFE)
        else:
            decision = Decision(max(exits, key=exits.__getitem__), scores=exits)
    except Exception:  # The last resort must answer: an engine punishes silence, not a bad move.
        decision = Decision(MOVES[0])
    return replace(decision, reasons=(Reason(FALLBACK, note=why), *decision.reasons))


def _exits(board: Board, move: str) -> int:
    """How many cells beside the one that ``move`` leads to are free of bodies."""
    taken = {cell for snake in board.living for cell in snake.body[:-1]}
    cell = board.target(board.you.head, move)
    around = [board.target(cell, direction) for direction in MOVES]
    return sum(board.inside(beside) and beside not in taken for beside in around)
