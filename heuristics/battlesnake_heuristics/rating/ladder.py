"""The ladder: opponents of fixed Elo, and the placement of a snake on the ladder.

An Elo difference of 100 predicts a score of 64%, 200 predicts 76%, and 400 predicts 91%. Duels and
games of four (two snakes per side) have separate ladders. ``ladder.json`` stores the results of the
game pairs between the rungs. ``fit_elo`` of commit 076b2e78 fitted the Elo to these results
(Bradley and Terry 1952). `ANCHOR_NAME` has 1000 Elo by definition. Searching rungs use a fixed
number of nodes, so their strength does not depend on the processor or its load.

>>> ladder = Ladder.load(2)
>>> [rung.name for rung in ladder.rungs][:3]
['safe-random', 'hungry', 'cautious']
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

import numpy as np

from battlesnake_gym import snakes
from battlesnake_gym.snakes import StrategyFactory
from battlesnake_heuristics.rating.match import MatchSettings, play_pair
from battlesnake_heuristics.rating.sprt import PAIR_SCORES, Z95, EloEstimate, expected_score

_RUNG_NODES = (10, 30, 100, 400, 2_000, 10_000, 50_000)
"""Node limits per move of the searching rungs."""

RUNG_NAMES = (
    "safe-random", "hungry", "cautious", "hunter", "tree", "territory", "lookahead",
    *(f"minimax-2026@{positions}" for positions in _RUNG_NODES),
)  # fmt: skip
"""Names of the snakes on the ladder."""

ANCHOR_NAME = "hungry"
ANCHOR_ELO = 1000.0


@dataclass(frozen=True, slots=True)
class Rung:
    """A snake with known Elo.

    ``ci_low`` and ``ci_high`` are the bounds of the 95% confidence interval of the Elo, relative to
    the anchor. ``cpu_seconds_per_game`` is the CPU time of the snake's moves in one game. The CPU
    time was measured on the processor on which the Elo of the ladder was measured.
    """

    name: str
    elo: float
    ci_low: float
    ci_high: float
    games: int
    cpu_seconds_per_game: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs for games of ``num_snakes`` snakes, ordered from weak to strong."""

    num_snakes: int
    rungs: tuple[Rung, ...]

    @classmethod
    def load(cls, num_snakes: int) -> Ladder:
        """Load the ladder for games of ``num_snakes`` snakes.

        Args:
            num_snakes: Snakes per game: 2 (duels) or 4.

        Raises:
            ValueError: If there is no ladder for this number of snakes.
        """
        data = json.loads(
            resources.files("battlesnake_heuristics.rating").joinpath("ladder.json").read_text()
        )
        if str(num_snakes) not in data["ladders"]:
            raise ValueError(
                f"num_snakes must be {' or '.join(data['ladders'])} for the ladder, "
                f"got {num_snakes}"
            )
        return cls(num_snakes, tuple(Rung(**rung) for rung in data["ladders"][str(num_snakes)]))


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a snake: its Elo with a 95% confidence interval.

    ``out_of_range`` is "above" or "below" if the Elo is more than 200 beyond the strongest or the
    weakest rung. The ladder then bounds the Elo on one side only, and the other bound is a guess.
    Otherwise, ``out_of_range`` is an empty string. ``pairs`` contains the number of game pairs with
    each outcome (`sprt.PAIR_SCORES`), by rung.
    """

    elo: float
    ci_low: float
    ci_high: float
    games: int
    out_of_range: str
    pairs: dict[str, list[int]]

    def __str__(self) -> str:
        suffix = f", {self.out_of_range} the ladder" if self.out_of_range else ""
        return f"{self.elo:.0f} Elo ({self.ci_low:.0f} to {self.ci_high:.0f}{suffix})"

    def rung_scores(self) -> dict[str, tuple[float, float, float]]:
        """Return the score and its 95% confidence interval (low, high), by rung."""
        return {
            rung: EloEstimate.from_pairs(pairs).score_with_interval
            for rung, pairs in self.pairs.items()
        }

    def rung_table(self) -> str:
        """Return the placement and the score against each rung as lines of text.

        The weakest rung comes first.
        """
        scores = self.rung_scores()
        rungs = sorted(Ladder.load(2).rungs, key=lambda rung: rung.elo)
        lines = [
            f"strength: {self} in {self.games} duels; scores (a draw counts half) and their "
            "95% confidence intervals:",
            f"  {'against':<20}   elo  games     score",
        ]
        for rung in rungs:
            if rung.name in scores:
                games = 2 * sum(self.pairs[rung.name])
                rate, low, high = scores[rung.name]
                lines.append(
                    f"  {rung.name:<20}{rung.elo:>6.0f}  {games:>5}  {rate:>8.0%} "
                    f"({low:.0%} to {high:.0%})"
                )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the placement and its rung scores as a JSON-compatible dictionary."""
        rungs = [
            {"name": rung, "games": 2 * sum(self.pairs[rung]), "score": score}
            | {"ci_low": low, "ci_high": high}
            for rung, (score, low, high) in self.rung_scores().items()
        ]
        return {
            "elo": self.elo,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "out_of_range": self.out_of_range,
            "games": self.games,
            "rungs": rungs,
        }


_PRIOR_ELO_SD = 700.0
"""Standard deviation of the prior of the Elo.

The mean of the prior is the middle of the ladder.
"""

GAME_OVERHEAD_S = 0.1
"""CPU time of a game in addition to the moves of the rung, in seconds."""


class PlacementRun:
    """An adaptive placement in progress.

    The placement selects opponents and estimates the Elo. Rungs near the current estimate provide
    the most information. Among these rungs, the placement prefers fast rungs and rungs with few
    games, so that no single style of play determines the result.

    Args:
        ladder: The rungs to play against.
        initial_elo: Elo near which the first opponents are selected (None: the middle of the
            ladder). This Elo does not influence the estimate.
    """

    def __init__(self, ladder: Ladder, initial_elo: float | None = None) -> None:
        self.ladder = ladder
        self._initial_elo = initial_elo
        self.pairs = {rung.name: [0] * 5 for rung in ladder.rungs}
        self.pairs_requested = dict.fromkeys(self.pairs, 0)
        """Number of pairs that `next_rung` has requested, by rung.

        This number is also the index of the rung's next pair.
        """
        elo = [rung.elo for rung in ladder.rungs]
        self._grid = np.arange(min(elo) - 1500, max(elo) + 1500, 5.0)
        self._middle = (min(elo) + max(elo)) / 2

    def next_rung(self) -> Rung:
        """Select the opponent of the next game pair."""
        started = any(any(pairs) for pairs in self.pairs.values())
        current_elo = (
            self._estimate_elo()[0] if started or self._initial_elo is None else self._initial_elo
        )
        rung = max(
            self.ladder.rungs, key=lambda rung: self._information_per_cost(rung, current_elo)
        )
        self.pairs_requested[rung.name] += 1
        return rung

    def add_pair(self, rung: str, outcome: int) -> None:
        """Add the outcome of a pair against ``rung``.

        ``outcome`` is an index into `sprt.PAIR_SCORES`.
        """
        self.pairs[rung][outcome] += 1
        self.pairs_requested[rung] = max(self.pairs_requested[rung], sum(self.pairs[rung]))

    @property
    def placement(self) -> Placement:
        """The placement according to the results so far."""
        elo, error = self._estimate_elo()
        played = {name: list(pairs) for name, pairs in self.pairs.items() if any(pairs)}
        return Placement(
            elo=round(elo, 1),
            ci_low=round(elo - Z95 * error, 1),
            ci_high=round(elo + Z95 * error, 1),
            games=2 * sum(map(sum, played.values())),
            out_of_range=self._range_side(elo),
            pairs=played,
        )

    def _information_per_cost(self, rung: Rung, current_elo: float) -> float:
        """Return the priority of a rung: information about the Elo relative to CPU time."""
        expected = expected_score(current_elo - rung.elo)
        cost = (1 + self.pairs_requested[rung.name]) * (GAME_OVERHEAD_S + rung.cpu_seconds_per_game)
        return expected * (1 - expected) / math.sqrt(cost)

    def _estimate_elo(self) -> tuple[float, float]:
        """Return the estimated Elo and the standard error of the estimate.

        The estimate treats the Elo of the rungs as exact.
        """
        log_posterior = -(((self._grid - self._middle) / _PRIOR_ELO_SD) ** 2) / 2
        played = [rung for rung in self.ladder.rungs if any(self.pairs[rung.name])]
        for rung in played:
            counts = np.array(self.pairs[rung.name])
            probability = expected_score(self._grid - rung.elo)
            log_posterior += 2 * counts @ PAIR_SCORES * np.log(probability)
            log_posterior += 2 * counts @ (1 - PAIR_SCORES) * np.log1p(-probability)
        weight = np.exp(log_posterior - log_posterior.max())
        weight /= weight.sum()
        elo = float(weight @ self._grid)
        variance = float(weight @ (self._grid - elo) ** 2) * self._dispersion(elo, played)
        return elo, math.sqrt(variance)

    def _dispersion(self, elo: float, played: Sequence[Rung]) -> float:
        """Return the variance of the pair results, at least 1.

        The variance is relative to independent games.
        """
        spread = independent = 0.0
        for rung in played:
            expected = expected_score(elo - rung.elo)
            counts = np.array(self.pairs[rung.name])
            spread += float(counts @ (PAIR_SCORES - expected) ** 2)
            independent += counts.sum() * expected * (1 - expected) / 2
        return max(1.0, spread / independent) if independent else 1.0

    def _range_side(self, elo: float) -> str:
        """Return "above" or "below" if the Elo is beyond the ladder, otherwise ""."""
        ranked = sorted(self.ladder.rungs, key=lambda rung: rung.elo)
        if elo > ranked[-1].elo + 200:
            return "above"
        return "below" if elo < ranked[0].elo - 200 else ""


DEFAULT_MATCH_SETTINGS = MatchSettings(move_time_ms=25)
"""Default settings of the games of a placement.

The limit applies to searching snakes.
"""


def run_placement(
    make: StrategyFactory,
    *,
    precision_elo: float = 75.0,
    cpu_seconds: float = math.inf,
    settings: MatchSettings = DEFAULT_MATCH_SETTINGS,
    rungs: Ladder | None = None,
    seed: int = 1,
    on_update: Callable[[Placement], None] | None = None,
) -> Placement:
    """Play a snake against rungs until its Elo is precise enough.

    All games run in this process.

    Args:
        make: Factory of the snake.
        precision_elo: Half-width of the 95% confidence interval at which to stop, in Elo.
        cpu_seconds: CPU time after which no further pair starts, in seconds.
        settings: Settings of the games, with 2 or 4 snakes.
        rungs: Rungs to play against (default: all).
        seed: Seed of the start positions, of the food and of the snakes.
        on_update: Called with the placement after every pair.

    Raises:
        ValueError: If there is no ladder for this number of snakes.
    """
    run, spent_s = PlacementRun(rungs or Ladder.load(settings.game_spec.num_snakes)), 0.0
    while True:
        rung = run.next_rung()
        opponent = partial(snakes.make, rung.name)
        index = run.pairs_requested[rung.name] - 1
        outcome, seconds = play_pair(settings, make, opponent, seed, index)
        run.add_pair(rung.name, outcome)
        spent_s += seconds
        now = run.placement
        if on_update is not None:
            on_update(now)
        if now.ci_high - now.ci_low <= 2 * precision_elo or spent_s >= cpu_seconds:
            return now
