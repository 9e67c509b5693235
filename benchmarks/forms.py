"""Whether a snake plays as well where an engine lists dead snakes as where it does not.

    python -m benchmarks.forms
    python -m benchmarks.forms --games 50 --snakes minimax

Every game is played twice from the same start: told as the official command line does, and as an
engine does that lists all snakes to the end, dead ones without a flag
(`server.arena.referee.ArenaForm`).
The snake sees requests alone, and keeps what a live snake keeps of a game. The search gets a fixed
number of positions, so that the figures do not depend on the machine.

``blunders`` are moves into certain death while another one was there.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Callable

from tqdm import tqdm

from battlesnake_gym import board_json, snakes
from battlesnake_gym.board import Board
from battlesnake_gym.corpses import Corpses
from battlesnake_gym.rules import Game, Snake, State
from battlesnake_gym.snakes import Strategy
from heuristics.search import Search
from server.arena.players import Answer, Body
from server.arena.referee import ArenaForm, play
from server.strategies import strategy_factory

FORMS = ("official", "all listed")
RIVALS = ("hungry", "cautious", "safe-random")


def main() -> None:
    """Play the pairs and print a row for every snake and form, after every 20 pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=200, help="pairs (%(default)s)")
    parser.add_argument("--nodes", type=int, default=300, help="of a search (%(default)s)")
    parser.add_argument("--snakes", nargs="*", default=["default", "minimax"])
    parser.add_argument("--turns", type=int, default=400, help="at most (%(default)s)")
    args = parser.parse_args()
    shipped = strategy_factory()
    makers: dict[str, Callable[[int], Strategy]] = {
        "default": shipped,
        "minimax": lambda seed: Search(nodes=args.nodes),
    }
    tqdm.write(f"{'snake':<10}{'form':<12}{'games':>7}{'won':>6}{'blunders':>10}")
    for name in args.snakes:
        won, blunders = Counter[str](), Counter[str]()
        for seed in tqdm(range(1, args.games + 1), disable=None, leave=False):
            for form in FORMS:
                player = Told(makers[name](seed), timed=name == "default")
                won[form] += asyncio.run(one_game(seed, player, form, args.turns))
                blunders[form] += player.blunders
            if seed % 20 == 0 or seed == args.games:
                for form in FORMS:
                    row = f"{name:<10}{form:<12}{seed:>7}{won[form]:>6}{blunders[form]:>10}"
                    tqdm.write(row)


async def one_game(seed: int, player: Told, form: str, turns: int) -> bool:
    """Whether ``player`` won."""
    game = Game(seed=seed, id=f"pair-{seed}")
    rivals = [Told(snakes.make(name, seed)) for name in RIVALS]
    listing = ArenaForm()
    me = ""  # known with the first request

    def write(game: Game, state: State, you: Snake) -> Body:
        nonlocal me
        me = me or state.snakes[0].id
        player.state = state
        # The rivals are told as ever, so that the two games differ by what one snake does.
        if you.id == me and form != "official":
            return listing(game, state, you)
        return board_json.write(game, state, you)

    record = await play(game, 11, 11, ["it", *RIVALS], [player, *rivals], turns, write=write)
    return record.winner == 0


class Told:
    """A strategy that is told by requests, and remembers of a game what a live snake does."""

    remote = False

    def __init__(self, strategy: Strategy, timed: bool = False) -> None:
        self._strategy = strategy
        self._corpses = Corpses()
        self._seconds = 10.0 if timed else None
        self.state: State | None = None
        self.blunders = 0

    async def introduce(self) -> dict[str, str]:
        """No looks."""
        return {}

    async def start(self, body: Body) -> None:
        """Nothing to prepare."""

    async def end(self, body: Body) -> None:
        """Nothing to clear away."""

    async def move(self, body: Body) -> Answer:
        """Choose, and note where that was a blunder."""
        began = time.perf_counter()
        board = Board.from_api(body, corpses=self._corpses, unread=[])
        decision = self._strategy(board, self._seconds)
        if self.state is not None:
            truth = Board.from_state(self.state, board.game, board.you_id)
            safe = truth.safe_moves()
            self.blunders += bool(safe) and decision.move not in safe
        return Answer(decision.move, 1000 * (time.perf_counter() - began))


if __name__ == "__main__":
    main()
