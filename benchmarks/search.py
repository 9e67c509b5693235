"""Measure the speed of the search: leaf evaluations per CPU second, and depth.

    python benchmarks/search.py [--seconds 0.4] [--positions 12] [--cores 2]
    python benchmarks/search.py --learned

The positions come from self-play games of the search. Measurements of one core use CPU time, so
that other programs do not matter. With ``--cores``, the benchmark measures wall-clock time with one
core and with several cores, on a machine that must be idle. ``--learned`` prints the relative cost
of a leaf evaluation. The relative cost is the cost with the learned evaluation divided by the cost
with the handcrafted evaluation, measured alternately.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import play
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import SEARCH_CORES, Search, SearchStats, Weights

_GAME_CASES = {
    "11x11 duel": (11, 2, "standard"),
    "11x11 four snakes": (11, 4, "standard"),
    "11x11 eight snakes": (11, 8, "standard"),
    "11x11 wrapped duel": (11, 2, "wrapped"),
    "11x11 constrictor duel": (11, 2, "constrictor"),
    "19x19 four snakes": (19, 4, "standard"),
    "25x25 duel": (25, 2, "standard"),
}
_TURNS_BETWEEN_POSITIONS = 12


def _sample_positions(size: int, snakes: int, ruleset: str, count: int) -> list[Board]:
    """Return positions from fast self-play games, several turns apart."""
    quick, seed = Search(nodes=300), 1
    found: list[Board] = []
    while len(found) < count:
        board = Board.new(size, size, snakes, game=Game(ruleset, seed=seed * 1_000_003))
        players = dict.fromkeys((snake.id for snake in board.snakes), quick)
        for _ in play(board, players):
            if board.turn % _TURNS_BETWEEN_POSITIONS == 0 and len(board.living) > 1:
                found.append(dataclasses.replace(board.copy(), you_id=board.living[0].id))
            if len(found) == count:
                break
        seed += 1
    return found


def _measure_search(
    search: Search, boards: list[Board], seconds: float, clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Measure the speed of a search on several boards.

    Returns:
        Medians over the boards: leaf evaluations per second, nodes per second, and depth in turns.
    """
    leaf_evals: list[float] = []
    nodes: list[float] = []
    depths: list[int] = []
    for board in boards:
        start = clock()
        statistic: SearchStats = search.search(board, seconds)[1]
        seconds_per_leaf_evaluation = clock() - start
        if statistic.proven:
            continue  # The search stopped early because the value was proven.
        leaf_evals.append(statistic.leaf_evals / seconds_per_leaf_evaluation)
        nodes.append(statistic.nodes / seconds_per_leaf_evaluation)
        depths.append(statistic.depth)
    return statistics.median(leaf_evals), statistics.median(nodes), statistics.median(depths)


def _measure_relative_costs(boards: list[Board], rounds: int, nodes: int = 10_000) -> list[float]:
    """Measure the relative cost of a learned leaf evaluation in each round."""
    handcrafted, learned = Search(nodes=nodes), Search(nodes=nodes, evaluation=load_builtin())

    def seconds_per_leaf_evaluation(search: Search) -> float:
        """Return the CPU seconds per leaf evaluation of a search."""
        began = time.process_time()
        leaf_evals = sum(search.search(board)[1].leaf_evals for board in boards)
        return (time.process_time() - began) / leaf_evals

    return [
        seconds_per_leaf_evaluation(learned) / seconds_per_leaf_evaluation(handcrafted)
        for _ in range(rounds)
    ]


def _print_relative_costs(count: int, rounds: int = 15) -> None:
    """Print the relative cost for each type of game.

    The types are the games that the built-in evaluation supports.
    """
    print(f"{'':24}{'learned / handcrafted':>22}{'lowest':>8}{'highest':>8}")
    for name, (size, snakes, ruleset) in _GAME_CASES.items():
        boards = _sample_positions(size, snakes, ruleset, count)
        if not load_builtin().unsupported_reason(boards[0]):
            found = _measure_relative_costs(boards, rounds)
            print(f"{name:24}{statistics.median(found):22.2f}{min(found):8.2f}{max(found):8.2f}")


def main() -> None:
    """Print the speed of the search for each type of game."""
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=0.4, help="time per search, in seconds")
    add("--positions", type=int, default=12, help="number of positions per game type")
    add("--cores", type=int, default=1, help="number of cores per search")
    add("--learned", action="store_true", help="measure the cost of the learned evaluation")
    args = parser.parse_args()
    if args.learned:
        _print_relative_costs(args.positions)
        return
    print(f"{'':24}{'cores':>6}{'leaf evals/s':>14}{'nodes/s':>12}{'depth':>7}")
    for name, (size, snakes, ruleset) in _GAME_CASES.items():
        boards = _sample_positions(size, snakes, ruleset, args.positions)
        for cores in sorted({1, args.cores}):
            SEARCH_CORES.configure(cores)
            clock = time.process_time if args.cores == 1 else time.perf_counter
            # Different weights prevent the searches from sharing results in the transposition
            # table.
            search = Search(Weights(draw=Weights().draw + cores))
            leaf_evals, nodes, depth = _measure_search(search, boards, args.seconds, clock)
            print(f"{name:24}{cores:6}{leaf_evals:14,.0f}{nodes:12,.0f}{depth:7.1f}")


if __name__ == "__main__":
    main()
