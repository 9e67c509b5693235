"""The search of 2026, frozen: what plays on the upper rungs of the ladder, and stays as it is.

Everything that decides its moves stands here and in ``csrc/frozen``: it shares neither code nor
weights with `heuristics.search`, which is improved. The same board and the same number of positions
have the same answer for ever, but with a clock it is as fast as its processor.
"""

from __future__ import annotations

import numpy as np

from battlesnake_gym.board import Board
from battlesnake_gym.rules import MOVES, Snake, grows_always, wraps
from battlesnake_gym.snakes import Decision, Reason

try:
    from heuristics import _search_2026
except ImportError:
    _search_2026 = None  # type: ignore[assignment]

WEIGHTS = (1000, 350, 6400, 5, 6200, 8400, 280, 53, 600_000, 7000, 16_000, 500_000)
"""In the order of ``csrc/frozen/search.h``, in thousandths of a cell of territory."""

MAX_DEPTH = 120
MOST_SNAKES = 16
CELL = 1000


class Search2026:
    """A strategy that searches for the seconds it is given, or ``nodes`` positions without a clock.

    Raises ``RuntimeError`` where the compiled part is missing.
    """

    def __init__(self, nodes: int = 20_000) -> None:
        if _search_2026 is None:
            raise RuntimeError(
                "the search is not compiled here; install with a C compiler: pip install ."
            )
        self.nodes = nodes

    def set_positions(self, positions: int) -> None:
        """Look at so many positions a move that comes without a clock."""
        self.nodes = positions

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Search for the best move of ``board.you``; its score is exact, the others are bounds."""
        snakes = _you_first(board)
        move, depth, proven, evaluated, _, scores, _ = _search_2026.think(
            board.width,
            board.height,
            wraps(board.game),
            grows_always(board.game),
            board.game.solo or board.game.ruleset == "solo",
            board.game.settings.hazard_damage_per_turn,
            np.array([len(snake.body) for snake in snakes], np.int32),
            np.array([snake.health for snake in snakes], np.int32),
            np.array([y * board.width + x for snake in snakes for x, y in snake.body], np.uint16),
            _counts(board, board.food),
            _counts(board, board.hazards),
            np.array(WEIGHTS, np.int32),
            seconds or 0.0,
            0 if seconds else self.nodes,
            MAX_DEPTH,
        )
        values = {MOVES[index]: value / CELL for index, value in scores.items()}
        note = f"depth {depth}{', decided' if proven else ''}, {evaluated} positions valued"
        return Decision(MOVES[move], (Reason("search", scores=values, note=note),), values)


def use_cpu_clock(on: bool) -> bool:
    """Whether the seconds of this search are CPU time of the process from now on; what was."""
    return _search_2026 is not None and _search_2026.use_cpu_clock(on)


def _you_first(board: Board) -> list[Snake]:
    you = board.you
    if you is None or not you.alive:
        raise ValueError("board.you must be a living snake; set board.you_id to one")
    living = (snake for snake in board.snakes if snake.alive and snake is not you)
    return [you, *living][:MOST_SNAKES]


def _counts(
    board: Board, points: list[tuple[int, int]]
) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """How often each cell of the board is listed."""
    counts = np.zeros(board.width * board.height, np.uint8)
    for x, y in points:
        if 0 <= x < board.width and 0 <= y < board.height:
            counts[y * board.width + x] += 1
    return counts
