"""How far the analysis of games can be relied on: its chances, and the mistakes that it finds.

    python -m benchmarks.analysis [--games 1000] [--milliseconds 50] [--planted 50] [--fit]

Games of the search against itself (`heuristics.selfplay`) are recorded. Of each, one position is
analysed: how often did a snake win whose chance was told to be 70 %? Then games are prepared in
which a snake is made to play a move that loses by force while a good one was there; that move must
be marked ``??``. ``--fit`` fits the numbers of `heuristics.calibration` to other games first, and
prints them.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm, trange

from benchmarks.planted import Planted, plant
from heuristics import calibration, selfplay
from heuristics.analysis import Analyst, marks, outcome
from heuristics.evaluation import shipped
from heuristics.search import use_cpu_clock
from heuristics.selfplay import Player, Setup

FIT_SEED, TEST_SEED, PLANT_SEED = 1, 1_000_000, 2_000_000
SETUPS = {
    True: (Setup(snakes=2), Setup(snakes=4), Setup(snakes=2, ruleset="wrapped")),
    False: (Setup(9, 9, 2), Setup(9, 9, 4), Setup(15, 15, 4)),
}
"""What is played where the learned evaluation values positions, and where the hand-set one does."""


@dataclass(frozen=True)
class Sample:
    """One analysed position: what the search said of each living snake, and what it got."""

    learned: bool
    turn: int
    values: dict[str, float]
    points: dict[str, float]

    def chances(self) -> dict[str, float]:
        """The chances that the analysis tells."""
        return calibration.chances(self.values, self.turn, self.learned)


def samples(first_seed: int, count: int, learned: bool, analyst: Analyst) -> Iterator[Sample]:
    """One position of each game, drawn by its seed; of games of several while there are several."""
    setups = SETUPS[learned]
    for seed in trange(first_seed, first_seed + count, unit="game"):
        setup = setups[seed % len(setups)]
        player = Player(shipped() if learned else None, nodes=60)
        played = selfplay.play_game(seed, setup, [player] * setup.snakes)
        crowded = played.rows["living"] > (2 if setup.snakes > 2 else 1)
        drawn = random.Random(seed).randrange(int(played.rows["turn"][crowded].max()) + 1)
        positions = selfplay.boards(seed, setup, played)
        board = next(itertools.islice(positions, drawn, None))
        values = analyst.values(board)
        yield Sample(learned, board.turn, values, {n: played.points[int(n)] for n in values})


def fit(found: list[Sample]) -> dict[int, tuple[float, ...]]:
    """The weights by how many snakes live."""
    weights = {}
    for living in (2, 3):
        of = [s for s in found if min(len(s.values), 3) == living and sum(s.points.values()) > 0]
        rows = [np.array([calibration.features(v, s.turn) for v in s.values.values()]) for s in of]
        points = [np.array(list(s.points.values())) for s in of]
        weights[living] = tuple(np.round(calibration.fit(rows, points), 3).tolist())
        print(f"    {living}: {weights[living]},  # {len(of)} positions")
    return weights


def reliability(found: list[Sample]) -> None:
    """Print the Brier score and, by tenths of the chance, how often it came true."""
    told = np.array([chance for s in found for chance in s.chances().values()])
    came = np.array([s.points[name] for s in found for name in s.chances()])
    guess = np.array([1 / len(s.values) for s in found for _ in s.values])
    print(f"{len(found)} positions, {len(told)} chances")
    score, equal = (np.mean((guessed - came) ** 2) for guessed in (told, guess))
    print(f"Brier score {score:.4f} (equal chances {equal:.4f})")
    print("   told     won   how many")
    for low in np.arange(0, 1, 0.1):
        within = (told >= low) & (told < low + 0.1 + (low > 0.85))
        if within.any():
            shown = "".join(
                "o" if abs(told[within].mean() - x) < 0.0125 else "."
                for x in np.arange(0, 1.01, 0.025)
            )
            at = round(float(came[within].mean()) * 40)
            shown = shown[:at] + "#" + shown[at + 1 :]
            print(
                f"  {told[within].mean():6.1%} {came[within].mean():6.1%} {within.sum():8}  {shown}"
            )


def found_again(planted: Planted, analyst: Analyst) -> bool:
    """Whether the planted move is marked ``??``, by the positions before and after it."""
    before = planted.replay.board(planted.turn)
    after = planted.replay.board(planted.turn + 1)
    chances = {name: judged.chance for name, judged in analyst.judge(after).items()}
    if len(after.living) < 2 and (points := outcome(after)) is not None:
        chances = points
    moves = planted.replay.turns[planted.turn - planted.replay.first.turn].moves
    told = marks(before.turn, analyst.judge(before), moves, chances)
    return any(m.snake_id == planted.snake_id and m.sign == "??" for m in told)


def main() -> None:
    """Fit where asked, then measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--milliseconds", type=float, default=50, help="a snake (default 50)")
    parser.add_argument("--planted", type=int, default=50, help="prepared games (default 50)")
    parser.add_argument("--fit", action="store_true", help="fit to as many other games first")
    args = parser.parse_args()
    use_cpu_clock(True)
    analyst = Analyst(seconds=args.milliseconds / 1000)
    for learned in (True, False):
        name = "learned" if learned else "by hand"
        if args.fit:
            print(f'"{name}": ' + "{")
            weights = fit(list(samples(FIT_SEED, args.games, learned, analyst)))
            calibration.WEIGHTS[name] = weights  # type: ignore[assignment]
        began = time.process_time()
        measured = list(samples(TEST_SEED, args.games, learned, analyst))
        print(f"positions valued {name}, {args.milliseconds:g} ms a snake:")
        reliability(measured)
        print(f"{time.process_time() - began:.0f} CPU-seconds")
    prepared = [plant(PLANT_SEED + 1000 * n) for n in tqdm(range(args.planted), unit="game")]
    marked = sum(found_again(planted, analyst) for planted in prepared)
    print(f"{marked} of {args.planted} planted losing moves marked ??")


if __name__ == "__main__":
    main()
