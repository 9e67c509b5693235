"""What more thinking is worth: duels of `champion` with more time and with less.

    python -m benchmarks.more_time double --milliseconds 25 --pairs 100
    python -m benchmarks.more_time ponder --milliseconds 3 --pairs 150
    python -m benchmarks.more_time cores --milliseconds 8 --pairs 40

``double`` thinks for all the time of a move against half of it. ``ponder`` thinks for as long again
over the turn that it expects next (`heuristics.search.Search.ponder`), as it would on a host with a
core to spare against rivals who take their time, against one that waits. ``cores`` thinks on two
cores against one, by the clock instead of CPU time, which wants a machine that does nothing else.
Seats are exchanged on each start.
"""

from __future__ import annotations

import argparse

from battlesnake_gym.board import Board
from battlesnake_gym.snakes import Decision
from heuristics import sprt
from heuristics.evaluation import shipped
from heuristics.match import Conditions, play_pair
from heuristics.search import CORES, Search, Weights, use_cpu_clock

OWN_TABLE = Weights(draw=Weights().draw + 1)
"""Weights of no other search: in the one table of a process neither finds what the other knows."""


class Champion(Search):
    """What the others are measured against, for all the time that it is given."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights, evaluation=shipped())


class Half(Champion):
    """Thinks for half of the time."""

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move."""
        return super().__call__(board, None if seconds is None else seconds / 2)


class Pondering(Champion):
    """Ponders after each of its moves."""

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move, and look at what comes after it."""
        decision = super().__call__(board, seconds)
        if seconds is not None:
            self.ponder(board, decision, seconds)
        return decision


class ByTheClock(Champion):
    """Thinks by the clock of the wall, on one core."""

    cores = 1

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move."""
        was_on = use_cpu_clock(False)
        CORES.use(self.cores)
        try:
            return super().__call__(board, seconds)
        finally:
            CORES.use(1)
            use_cpu_clock(was_on)


class OnTwoCores(ByTheClock):
    """The same on two."""

    cores = 2


WAYS: dict[str, tuple[type[Champion], type[Champion]]] = {
    "double": (Champion, Half),
    "ponder": (Pondering, Champion),
    "cores": (OnTwoCores, ByTheClock),
}
"""Who has more, and who has less."""


def main(argv: list[str] | None = None) -> int:
    """Play, and tell the result as it grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--milliseconds", type=float, default=3.0, help="of CPU time a move")
    parser.add_argument("--pairs", type=int, default=150, help="of games")
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args(argv)
    more, less = WAYS[arguments.way]
    conditions = Conditions(milliseconds=arguments.milliseconds)
    outcomes = [0] * len(sprt.OUTCOMES)
    for index in range(arguments.pairs):
        outcome, _ = play_pair(
            conditions,
            lambda seed: more(OWN_TABLE),
            lambda seed: less(Weights()),
            arguments.seed,
            index,
        )
        outcomes[outcome] += 1
        if (index + 1) % 10 == 0 or index + 1 == arguments.pairs:
            seen = sprt.estimate(outcomes)
            print(
                f"{index + 1} pairs {outcomes}: {seen.score:.3f} of the points, {seen}", flush=True
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
