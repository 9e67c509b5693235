"""What thinking on the rivals' time is worth: duels of a search that ponders and one that waits.

    python -m benchmarks.pondering --milliseconds 3 --pairs 150

Both think for as long a move, in CPU time, and the one that ponders for as long again over the turn
that it expects next (`heuristics.search.Search.ponder`), as it would on a host with a core to spare
against rivals who take their time. Seats are exchanged on each start.
"""

from __future__ import annotations

import argparse

from battlesnake_gym.board import Board
from battlesnake_gym.snakes import Decision
from heuristics import sprt
from heuristics.match import Conditions, play_pair
from heuristics.search import Search, Weights

OWN_TABLE = Weights(draw=Weights().draw + 1)
"""Weights of no other search: in the one table of a process neither finds what the other knows."""


class Pondering(Search):
    """Ponders after each of its moves."""

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move, and look at what comes after it."""
        decision = super().__call__(board, seconds)
        if seconds is not None:
            self.ponder(board, decision, seconds)
        return decision


def main(argv: list[str] | None = None) -> int:
    """Play, and tell the result as it grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--milliseconds", type=float, default=3.0, help="of CPU time a move")
    parser.add_argument("--pairs", type=int, default=150, help="of games")
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args(argv)
    conditions = Conditions(milliseconds=arguments.milliseconds)
    outcomes = [0] * len(sprt.OUTCOMES)
    for index in range(arguments.pairs):
        outcome, _ = play_pair(
            conditions,
            lambda seed: Pondering(OWN_TABLE),
            lambda seed: Search(),
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
