"""How fast the search thinks: positions valued per CPU-second, and how deep it looks.

    python benchmarks/search.py [--seconds 0.4] [--positions 12] [--cores 2]
    python benchmarks/search.py --learned

Positions come from games that the search plays against itself. On one core by CPU time, so that
other work on the machine does not count; with more, and with one of them for comparison, by the
clock, which needs a machine that does nothing else. ``--learned`` shows instead what a position
costs with the learned evaluation over the hand-made one, the two by turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import play
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import SEARCH_CORES, Search, SearchStats, Weights

_CASES = {
    "11x11 duel": (11, 2, "standard"),
    "11x11 four snakes": (11, 4, "standard"),
    "11x11 eight snakes": (11, 8, "standard"),
    "11x11 wrapped duel": (11, 2, "wrapped"),
    "11x11 constrictor duel": (11, 2, "constrictor"),
    "19x19 four snakes": (19, 4, "standard"),
    "25x25 duel": (25, 2, "standard"),
}
_TURNS_BETWEEN = 12


def positions(size: int, snakes: int, ruleset: str, count: int) -> list[Board]:
    """Boards from a few quick games of the search against itself, some turns apart."""
    quick, seed = Search(nodes=300), 1
    found: list[Board] = []
    while len(found) < count:
        board = Board.new(size, size, snakes, game=Game(ruleset, seed=seed * 1_000_003))
        players = dict.fromkeys((snake.id for snake in board.snakes), quick)
        for _ in play(board, players):
            if board.turn % _TURNS_BETWEEN == 0 and len(board.living) > 1:
                found.append(dataclasses.replace(board.copy(), you_id=board.living[0].id))
            if len(found) == count:
                break
        seed += 1
    return found


def measure(
    search: Search, boards: list[Board], seconds: float, clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Medians over the boards: positions valued and visited per second, and depth in turns."""
    valued: list[float] = []
    visited: list[float] = []
    depths: list[int] = []
    for board in boards:
        start = clock()
        statistic: SearchStats = search.think(board, seconds)[1]
        spent = clock() - start
        if statistic.proven:
            continue  # decided before the time was up
        valued.append(statistic.leaf_evals / spent)
        visited.append(statistic.nodes / spent)
        depths.append(statistic.depth)
    return statistics.median(valued), statistics.median(visited), statistics.median(depths)


def cost_of_learned(boards: list[Board], rounds: int, nodes: int = 10_000) -> list[float]:
    """By rounds: CPU seconds for a position with the learned evaluation, over those by hand."""
    by_hand, learned = Search(nodes=nodes), Search(nodes=nodes, evaluation=load_builtin())

    def spent(search: Search) -> float:
        began = time.process_time()
        valued = sum(search.think(board)[1].leaf_evals for board in boards)
        return (time.process_time() - began) / valued

    return [spent(learned) / spent(by_hand) for _ in range(rounds)]


def print_cost_of_learned(count: int, rounds: int = 15) -> None:
    """Print a line for each kind of game that the shipped evaluation was trained for."""
    print(f"{'':24}{'learned / by hand':>18}{'lowest':>8}{'highest':>8}")
    for name, (size, snakes, ruleset) in _CASES.items():
        boards = positions(size, snakes, ruleset, count)
        if not load_builtin().unsupported_reason(boards[0]):
            found = cost_of_learned(boards, rounds)
            print(f"{name:24}{statistics.median(found):18.2f}{min(found):8.2f}{max(found):8.2f}")


def main() -> None:
    """Print a line for each kind of game."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.4, help="a move (default 0.4)")
    parser.add_argument("--positions", type=int, default=12, help="boards a case (default 12)")
    parser.add_argument("--cores", type=int, default=1, help="of a search (default 1)")
    parser.add_argument("--learned", action="store_true", help="what the learned evaluation costs")
    args = parser.parse_args()
    if args.learned:
        print_cost_of_learned(args.positions)
        return
    print(f"{'':24}{'cores':>6}{'valued/s':>12}{'visited/s':>12}{'depth':>7}")
    for name, (size, snakes, ruleset) in _CASES.items():
        boards = positions(size, snakes, ruleset, args.positions)
        for cores in sorted({1, args.cores}):
            SEARCH_CORES.use(cores)
            clock = time.process_time if args.cores == 1 else time.perf_counter
            # weights of its own: else it would find in the table what the one before has found
            search = Search(Weights(draw=Weights().draw + cores))
            valued, visited, depth = measure(search, boards, args.seconds, clock)
            print(f"{name:24}{cores:6}{valued:12,.0f}{visited:12,.0f}{depth:7.1f}")


if __name__ == "__main__":
    main()
