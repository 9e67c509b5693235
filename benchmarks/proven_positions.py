"""Measure how often a search chooses a move that loses a proven result.

    python benchmarks/proven_positions.py [--positions 2000] [--move-time 2 25 100]

The positions come from duels on 7x7 without new food, so nothing is random. Half of the positions
come from constrictor games, and half from endgames of standard games. An exhaustive search proves
the result of each move against all replies: a win, a draw or a loss. Only positions whose moves
have different results count. The benchmark prints the fraction of positions in which the snake
chooses a suboptimal move, with its 95% confidence interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Strategy, make, play
from battlesnake_heuristics.analysis.win_probability import MIN_PROVEN_VALUE
from battlesnake_heuristics.rating.sprt import wilson_interval
from battlesnake_heuristics.search.search import Search, use_cpu_clock

_MIN_PROVEN_VALUE = 300.0
"""Minimum absolute search value of a proven result, in cells."""

_PROOF_NODES = 200_000
"""Maximum number of nodes of a proof. Positions without a proof do not count."""

_GAME_CASES = {
    "constrictor": (Game("constrictor"), range(2, 20, 3)),
    "endgame": (Game("standard"), range(40, 400, 20)),
}
"""Measured types of games, and the turns of which positions are proven."""


@dataclass(frozen=True)
class _ProvenPosition:
    """A position and the proven result of each move.

    The results are 2 for a win, 1 for a draw and 0 for a loss.
    """

    board: Board
    results: dict[str, int]


def _prove_moves(board: Board) -> _ProvenPosition | None:
    """Prove the result of each move of a position.

    Returns:
        The proof, or None if there is no proof or if all results are equal.
    """
    decision, _ = Search(nodes=_PROOF_NODES, exact=True).search(board)
    values = decision.scores
    if any(abs(value) < _MIN_PROVEN_VALUE for value in values.values()):
        return None
    results = {
        move: 2 if v > 0 else 0 if v < -MIN_PROVEN_VALUE else 1 for move, v in values.items()
    }
    return _ProvenPosition(board, results) if len(set(results.values())) > 1 else None


def _iter_proven_positions(kind: str, count: int) -> Iterator[_ProvenPosition]:
    """Yield ``count`` proven positions of self-play games, at most one per game."""
    game, turns = _GAME_CASES[kind]
    seed = found = 0
    while found < count:
        seed += 1
        first = turns[seed % len(turns)]
        board = Board.new(7, 7, 2, game=replace(game, seed=seed))
        for _ in play(board, dict.fromkeys((one.id for one in board.snakes), Search(nodes=100))):
            if board.turn < first or board.turn not in turns or len(board.living) < 2:
                continue
            still = replace(board.game, settings=Settings(food_spawn_chance=0, minimum_food=0))
            one = _prove_moves(replace(board.copy(), game=still, you_id=board.living[0].id))
            if one:
                found += 1
                yield one
                break


def _count_worse_moves(snake: Strategy, boards: Sequence[_ProvenPosition], seconds: float) -> int:
    """Count the positions in which the snake does not choose a best move."""
    chosen = ((one, snake(one.board, seconds).move) for one in boards)
    return sum(one.results.get(move, 0) < max(one.results.values()) for one, move in chosen)


def main() -> None:
    """Print the fraction of worse moves for each time per move."""
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--snake", default="champion", help="built-in snake to measure")
    add("--positions", type=int, default=2000,
        help="number of positions, half from constrictor games and half from endgames")  # fmt: skip
    add("--move-time", type=float, nargs="+", default=[2, 25, 100], metavar="MS",
        help="CPU times per move, in milliseconds")  # fmt: skip
    options = parser.parse_args()
    use_cpu_clock(True)
    for kind in _GAME_CASES:
        started = time.process_time()
        boards = list(_iter_proven_positions(kind, options.positions // 2))
        spent = time.process_time() - started
        print(f"{kind}: {len(boards)} positions proven in {spent:.0f} CPU seconds")
        for one in options.move_time:
            fraction = _count_worse_moves(make(options.snake), boards, one / 1000) / len(boards)
            low, high = wilson_interval(fraction, len(boards))
            print(f"  {one:g} ms per move: worse moves in {fraction:.1%} ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
