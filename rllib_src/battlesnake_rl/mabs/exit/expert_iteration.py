"""Expert iteration in one process: the search teaches its own evaluation by playing itself.

A round (Anthony, Tian and Barber 2017): games of the search in C against itself, earlier networks
and snakes of other styles; labels by TD(lambda) over the search's own values; a fit over the rounds
in memory; and the next round's search thinks with the new network.

    python -m battlesnake_rl.mabs.exit.expert_iteration --folder evaluation --minutes 120

Everything lies in the folder, whole after every round; the same command goes on from it. The newest
network is ``latest.evaluation``.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from battlesnake_gym.common.files import write_atomically
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_heuristics.search.search import Weights
from battlesnake_heuristics.search.selfplay import (
    AT_RANDOM,
    GamesRows,
    SearchPlayer,
    SelfPlaySetup,
    play_game,
    play_games,
)
from battlesnake_rl.mabs.exit.evaluation_fit import Model, Samples, labelled, loss_in_whole_numbers

MIX = (
    (0.36, SelfPlaySetup()),
    (0.27, SelfPlaySetup(snakes=4)),
    (0.07, SelfPlaySetup(snakes=3)),
    (0.03, SelfPlaySetup(snakes=8)),
    (0.04, SelfPlaySetup(7, 7)),
    (0.03, SelfPlaySetup(19, 19, 4)),
    (0.03, SelfPlaySetup(ruleset="royale")),
    (0.04, SelfPlaySetup(ruleset="royale", snakes=4)),
    (0.04, SelfPlaySetup(ruleset="wrapped")),
    (0.04, SelfPlaySetup(ruleset="wrapped", snakes=4)),
    (0.03, SelfPlaySetup(ruleset="constrictor")),
    (0.02, SelfPlaySetup(ruleset="constrictor", snakes=4)),
)
"""What is played, by its share of the moves."""

NODES = (100, 150, 200, 300)
"""Positions a move; each chunk of games draws one."""
QUICK_ROUNDS, LATER_NODES = 14, (400, 800, 1600)
"""So many rounds are played so quickly; later ones by these positions a move, since what is left to
learn then are games in which neither side overlooks anything near."""
CHUNK = 6_000
"""Searched moves between two looks at the mix."""
CHECK_GAMES = 40
"""Duels of a check against the hand-made weights; half as many games of four."""
IN_MEMORY = 8
"""Rounds that are fitted together."""
STYLES = {"food_near": 1.0, "length": 0.7, "longest": 0.7, "hunger": 1.0, "cramped": 0.7}
"""Weights of the hand-made evaluation that differ from opponent to opponent, and how widely."""
HEAVIEST = 100_000
"""No weight of the search may be more."""


@dataclass
class Progress:
    """What a run has done so far, as ``progress.json`` keeps it."""

    rounds: int = 0
    cpu_seconds: float = 0.0
    games: int = 0
    moves: int = 0
    seed: int = 1

    @classmethod
    def of(cls, folder: Path) -> Progress:
        """Go on from the folder's, or begin."""
        path = folder / "progress.json"
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def save(self, folder: Path) -> None:
        """Write it whole."""
        text = json.dumps(vars(self), indent=1)
        write_atomically(folder / "progress.json", lambda part: part.write_text(text))


class Opponents:
    """Who sits opposite: the newest network itself, earlier ones, or weights of other styles."""

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        self.rng = rng
        self.earlier = sorted(folder.glob("network-*.evaluation"))

    def seats(self, snakes: int, latest: SearchPlayer) -> tuple[list[SearchPlayer], list[int]]:
        """The players, and the indices of those whose rows are learned from."""
        drawn = self.rng.random()
        if latest.evaluation is None or drawn < 0.6:
            return [latest] * snakes, list(range(snakes))
        others = snakes // 2 if self.rng.random() < 0.5 else 1
        if drawn < 0.85 and self.earlier:
            path = self.earlier[self.rng.integers(len(self.earlier))]
            rival = replace(latest, evaluation=Evaluation.load(path))
            return [latest] * (snakes - others) + [rival] * others, list(range(snakes))
        rival = replace(latest, evaluation=None, weights=self.style())
        return [latest] * (snakes - others) + [rival] * others, list(range(snakes - others))

    def style(self) -> Weights:
        """The hand-made weights with another appetite, within what the search takes."""
        now = Weights()
        changed = {
            name: min(round(getattr(now, name) * math.exp(self.rng.normal(0, width))), HEAVIEST)
            for name, width in STYLES.items()
        }
        return replace(now, **changed)


class Schedule:
    """Says which game of `MIX` is next: the one that is most behind its share of the moves."""

    def __init__(self) -> None:
        shares = np.array([share for share, _ in MIX])
        self._shares = shares / shares.sum()
        self._behind = np.zeros(len(MIX))

    def next(self) -> int:
        """Its index."""
        return int((self._behind + self._shares).argmax())

    def played(self, index: int, moves: int) -> None:
        """So many searched moves of it are there, or asked for; fewer than none take some back."""
        self._behind += self._shares * moves
        self._behind[index] -= moves


def play_round(
    folder: Path, latest: Evaluation | None, moves: int, progress: Progress, bar: tqdm[Any]
) -> Samples:
    """Play until there are ``moves`` searched moves, and label them."""
    rng = np.random.default_rng([progress.rounds, progress.seed])
    opponents, schedule = Opponents(folder, rng), Schedule()
    parts: list[GamesRows] = []
    played = 0
    while played < moves:
        kind = schedule.next()
        setup = MIX[kind][1]
        nodes = NODES if progress.rounds < QUICK_ROUNDS else LATER_NODES
        player = SearchPlayer(latest, nodes=int(rng.choice(nodes)))
        players, learned = opponents.seats(setup.snakes, player)
        games = play_games(progress.seed, setup, players, CHUNK)
        searched = int((games.rows["kind"] != AT_RANDOM).sum())
        schedule.played(kind, searched)
        progress.seed += len(games.points)
        progress.games += len(games.points)
        progress.moves += searched
        played += searched
        parts.append(games.of(learned))
        bar.update(searched)
    return labelled(GamesRows.joined(parts))


def play_pair(one: SearchPlayer, other: SearchPlayer, setup: SelfPlaySetup, seed: int) -> float:
    """Points of ``one`` (0 to 2) in a start that is played twice, with seats exchanged.

    With more than two snakes the two sit alternately, and the side of the last one alive wins.
    """
    setup = replace(setup, opening=4, random_moves=0.0)
    points = 0.0
    for first in (0, 1):
        sides = [(seat + first) % 2 for seat in range(setup.snakes)]
        game = play_game(seed, setup, [(one, other)[side] for side in sides])
        share = float(sum(p for p, side in zip(game.points, sides, strict=True) if side == 0))
        points += 0.5 + 0.5 * float(np.sign(round(2 * share - 1, 6)))
    return points


def strength(
    one: SearchPlayer,
    other: SearchPlayer,
    setup: SelfPlaySetup,
    games: int,
    seed: int = 900_000_000,
) -> tuple[float, float]:
    """The share of the points of ``one`` in pairs of games, and half of its 95 % interval.

    ``games`` is even and 4 or more: an interval needs two pairs.
    """
    if games < 4 or games % 2:
        raise ValueError(f"games must be even and 4 or more, got {games}")
    scores = np.array([play_pair(one, other, setup, seed + i) / 2 for i in range(games // 2)])
    return float(scores.mean()), 1.96 * float(scores.std(ddof=1)) / math.sqrt(len(scores))


def facts(progress: Progress, command: str) -> dict[str, Any]:
    """What a file says of its network; the map of royale has the hazards of its ruleset."""
    rulesets = sorted({setup.ruleset for _, setup in MIX})
    return {
        "trained_for": {
            "rulesets": rulesets,
            "maps": ["standard", *(["royale"] if "royale" in rulesets else [])],
            "sizes": sorted({(setup.width, setup.height) for _, setup in MIX}),
            "snakes": sorted({n for _, setup in MIX for n in range(2, setup.snakes + 1)}),
        },
        "command": command,
        "rounds": progress.rounds,
        "games": progress.games,
        "moves": progress.moves,
        "cpu_seconds": round(progress.cpu_seconds),
    }


class Run:
    """A folder that is taught in; `round` teaches one round more."""

    def __init__(self, folder: Path, command: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.command = folder, command
        self.progress = Progress.of(folder)
        self.model = Model()
        self.latest: Evaluation | None = None
        if self.progress.rounds:
            self.model.restore(torch.load(folder / "model.pt"))
            self.latest = Evaluation.load(folder / "latest.evaluation")

    def round(self, moves: int, epochs: float) -> dict[str, Any]:
        """Play, label, fit, save; what there is to tell of it."""
        started, number = time.process_time(), self.progress.rounds
        with tqdm(
            total=moves, desc=f"round {number}", unit="move", leave=False, disable=None
        ) as bar:
            fresh = play_round(self.folder, self.latest, moves, self.progress, bar)
        played = time.process_time() - started
        self._remember(number, fresh)
        samples = Samples.joined([self._recall(n) for n in self._kept(number)])
        losses = self.model.fit(
            samples, epochs if number else 4.0, 1.5e-3 if number else 3e-3, seed=number
        )
        self.progress.rounds += 1
        self.progress.cpu_seconds += time.process_time() - started
        self.latest = self.model.evaluation(facts(self.progress, self.command))
        self._save(number)
        return {
            "round": number,
            "cpu_seconds": round(self.progress.cpu_seconds),
            "playing": round(played),
            "losses": [round(loss, 4) for loss in losses],
            "rounded": round(loss_in_whole_numbers(self.latest, fresh), 4),
        }

    def _kept(self, number: int) -> range:
        """The rounds in memory; the hand-made evaluation's own games leave soon."""
        first = 0 if number < 3 else 1
        return range(max(first, number + 1 - IN_MEMORY), number + 1)

    def _samples_path(self, number: int) -> Path:
        return self.folder / f"samples-{number:04}.npz"

    def _remember(self, number: int, samples: Samples) -> None:
        samples.save(self._samples_path(number))
        self._samples_path(number - IN_MEMORY).unlink(missing_ok=True)

    def _recall(self, number: int) -> Samples:
        return Samples.load(self._samples_path(number))

    def _save(self, number: int) -> None:
        assert self.latest is not None
        write_atomically(self.folder / "model.pt", lambda p: torch.save(self.model.state(), p))
        self.latest.save(self.folder / f"network-{number:04}.evaluation")
        self.latest.save(self.folder / "latest.evaluation")
        self.progress.save(self.folder)


def check_strength(run: Run, games: int) -> dict[str, Any]:
    """How the newest network does against the hand-made weights, at equal positions a move."""
    mine, hand = SearchPlayer(run.latest, nodes=400), SearchPlayer(nodes=400)
    told = {}
    for name, setup, number in (
        ("duels", SelfPlaySetup(), games),
        ("four", SelfPlaySetup(snakes=4), games // 2),
    ):
        points, error = strength(mine, hand, setup, number)
        told[name] = f"{points:.2f}+-{error:.2f}"
    return told


def tell_round(folder: Path, told: Mapping[str, Any]) -> None:
    """Print what came of a round, and keep it in the folder's ``rounds.jsonl``."""
    line = json.dumps(told)
    tqdm.write(line)
    sys.stdout.flush()
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(line + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options and teach until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("evaluation"), help="of the run")
    parser.add_argument("--minutes", type=float, default=120.0, help="of CPU time, in all")
    parser.add_argument("--moves", type=int, default=300_000, help="searched moves a round")
    parser.add_argument("--epochs", type=float, default=1.0, help="over the rounds in memory")
    parser.add_argument("--check-every", type=int, default=4, help="rounds between two matches")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    run = Run(
        args.folder,
        shlex.join(["python", "-m", "battlesnake_rl.mabs.exit.expert_iteration", *sys.argv[1:]]),
    )
    while run.progress.cpu_seconds < 60 * args.minutes:
        told = run.round(args.moves, args.epochs)
        if told["round"] % args.check_every == 0:
            told |= check_strength(run, CHECK_GAMES)
        tell_round(args.folder, told)


if __name__ == "__main__":
    main()
