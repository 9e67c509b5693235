"""The move that is always there in time: safe where possible, with room to go on."""

from __future__ import annotations

from battlesnake_gym.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason


def safe_move(board: Board, why: str) -> Decision:
    """Choose among the safe moves the one whose cell has most free neighbours, in microseconds.

    ``why`` says what kept the real strategy from answering. Never raises, whatever the board.
    """
    try:
        moves = board.safe_moves() or list(MOVES)
        scores = {move: float(_exits(board, move)) for move in moves}
    except Exception:  # The last resort must answer: an engine punishes silence, not a bad move.
        moves, scores = [MOVES[0]], {}
    best = max(moves, key=lambda move: scores.get(move, 0.0))
    reason = Reason("fallback", tuple(m for m in MOVES if m not in moves), scores, why)
    return Decision(best, (reason,), scores)


def _exits(board: Board, move: str) -> int:
    """How many cells beside the one that ``move`` leads to are free of bodies."""
    taken = {cell for snake in board.living for cell in snake.body[:-1]}
    cell = board.target(board.you.head, move)
    around = [board.target(cell, direction) for direction in MOVES]
    return sum(board.inside(beside) and beside not in taken for beside in around)
