"""How often a search gives away what it could hold: a yardstick without opponents.

    python benchmarks/proven_positions.py [--positions 2000] [--milliseconds 2 25 100]

Duels on 7x7 in which nothing is left to chance, since no food appears: constrictor, and endgames of
the standard game. A search to the end proves what each move holds, whatever the rival does: a win,
a draw or nothing. Counted are positions in which moves differ, and shown is the share in which a
snake chooses one that holds less than the best, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Strategy, make, play
from battlesnake_heuristics.analysis.win_probability import PROVEN_VALUE
from battlesnake_heuristics.rating.sprt import wilson_interval
from battlesnake_heuristics.search.search import Search, use_cpu_clock

_END = 300.0
"""A value of the search beyond this, in cells, is no estimate but the end of a game."""

_PROOF = 200_000
"""Positions at most for a proof; without one, a position does not count."""

_KINDS = {
    "constrictor": (Game("constrictor"), range(2, 20, 3)),
    "endgame": (Game("standard"), range(40, 400, 20)),
}
"""Each game, and the turns from which positions are taken."""


@dataclass(frozen=True)
class Proved:
    """A position and what each of its moves holds: 2 a win, 1 a draw, 0 nothing."""

    board: Board
    held: dict[str, int]


def proved(board: Board) -> Proved | None:
    """The proof, where there is one and moves differ."""
    decision, _ = Search(nodes=_PROOF, exact=True).think(board)
    values = decision.scores
    if any(abs(value) < _END for value in values.values()):
        return None
    held = {move: 2 if v > 0 else 0 if v < -PROVEN_VALUE else 1 for move, v in values.items()}
    return Proved(board, held) if len(set(held.values())) > 1 else None


def positions(kind: str, count: int) -> Iterator[Proved]:
    """The first ``count`` of games of the search against itself, one a game at most."""
    game, turns = _KINDS[kind]
    seed = found = 0
    while found < count:
        seed += 1
        first = turns[seed % len(turns)]
        board = Board.new(7, 7, 2, game=replace(game, seed=seed))
        for _ in play(board, dict.fromkeys((one.id for one in board.snakes), Search(nodes=100))):
            if board.turn < first or board.turn not in turns or len(board.living) < 2:
                continue
            still = replace(board.game, settings=Settings(food_spawn_chance=0, minimum_food=0))
            one = proved(replace(board.copy(), game=still, you_id=board.living[0].id))
            if one:
                found += 1
                yield one
                break


def given_away(snake: Strategy, boards: Sequence[Proved], seconds: float) -> int:
    """In how many the snake chooses a move that holds less than the best."""
    chosen = ((one, snake(one.board, seconds).move) for one in boards)
    return sum(one.held.get(move, 0) < max(one.held.values()) for one, move in chosen)


def main() -> None:
    """Print the shares of all times a move."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--snake", default="champion")
    parser.add_argument("--positions", type=int, default=2000, help="half of each kind")
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[2, 25, 100])
    options = parser.parse_args()
    use_cpu_clock(True)
    for kind in _KINDS:
        began = time.process_time()
        boards = list(positions(kind, options.positions // 2))
        print(f"{kind}: {len(boards)} proved in {time.process_time() - began:.0f} CPU seconds")
        for one in options.milliseconds:
            share = given_away(make(options.snake), boards, one / 1000) / len(boards)
            low, high = wilson_interval(share, len(boards))
            print(f"  {one:g} ms a move: gave away in {share:.1%} ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
