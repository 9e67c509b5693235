"""The ladder: snakes whose Elo is known and does not move, and another snake's place on it.

Elo says who wins: 100 Elo more is 64 % of the points, 200 is 76 %, 400 is 91 %. The rungs were
measured once (`fit` of their games), duels and games of four (two snakes each) apart, and
``ladder.json`` holds what came of it; `ANCHOR` is 1000 by definition. The searching rungs look at a
fixed number of positions, so they are as strong on any processor and however busy it is.

>>> ladder = load(2)
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

from battlesnake_gym import snakes as named
from battlesnake_gym.snakes import Factory
from battlesnake_heuristics.rating.match import MatchSettings, play_pair
from battlesnake_heuristics.rating.sprt import PAIR_SCORES, Z95

_RUNG_NODES = (10, 30, 100, 400, 2_000, 10_000, 50_000)
"""Positions a move of the searching rungs."""

RUNG_NAMES = (
    "safe-random",
    "hungry",
    "cautious",
    "hunter",
    "tree",
    "territory",
    "lookahead",
    *(f"minimax-2026@{positions}" for positions in _RUNG_NODES),
)
"""The snakes on the ladder."""

ANCHOR = "hungry"
ANCHOR_ELO = 1000.0

_LOGITS_PER_ELO = math.log(10) / 400
"""What one Elo is in natural logits."""


@dataclass(frozen=True, slots=True)
class PairResults:
    """What came of one snake's games against another: counts of pairs, as in `sprt`."""

    one: str
    other: str
    pairs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rung:
    """A snake of known strength; ``low`` and ``high`` are its 95 % interval against the anchor.

    ``cpu_seconds_per_game`` is the CPU time of its own moves in a game, on the processor that measured it.
    """

    name: str
    elo: float
    low: float
    high: float
    games: int
    cpu_seconds_per_game: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs for games of ``snakes`` snakes, from weak to strong as they are listed."""

    snakes: int
    rungs: tuple[Rung, ...]


def load(snakes: int) -> Ladder:
    """The ladder for games of 2 (duels) or 4 ``snakes``. Raises ``ValueError`` for others."""
    data = json.loads(
        resources.files("battlesnake_heuristics.rating").joinpath("ladder.json").read_text()
    )
    if str(snakes) not in data["ladders"]:
        raise ValueError(
            f"there is a ladder for {' and '.join(data['ladders'])} snakes, got {snakes}"
        )
    return Ladder(snakes, tuple(Rung(**rung) for rung in data["ladders"][str(snakes)]))


def fit(meetings: Sequence[PairResults], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Elo of each of ``names`` and its standard error against `ANCHOR`, from who beat whom.

    Bradley and Terry's model (1952) by maximum likelihood, a draw being half a win. The errors take
    pairs of games for what is independent (a sandwich estimate). A prior as weak as one draw with
    each opponent met keeps the Elo of who won or lost everything finite.
    """
    index = {name: number for number, name in enumerate(names)}
    rows = [(index[met.one], index[met.other], np.array(met.pairs, np.float64)) for met in meetings]
    theta = np.zeros(len(names))
    free = np.array([name != ANCHOR for name in names])
    for _ in range(50):
        gradient, information = np.zeros(len(names)), np.zeros((len(names), len(names)))
        variation = np.zeros_like(information)
        for one, other, pairs in rows:
            expected = 1 / (1 + math.exp(theta[other] - theta[one]))
            games = 2 * pairs.sum() + 1
            surplus = 2 * float(pairs @ (PAIR_SCORES - expected)) + (0.5 - expected)
            edge = np.zeros(len(names))
            edge[one], edge[other] = 1, -1
            gradient += surplus * edge
            information += games * expected * (1 - expected) * np.outer(edge, edge)
            spread = 4 * float(pairs @ (PAIR_SCORES - expected) ** 2) + (0.5 - expected) ** 2
            # Few pairs may all have ended alike; they vary by chance at least.
            spread = max(spread, games * expected * (1 - expected))
            variation += spread * np.outer(edge, edge)
        step = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        theta[free] += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-9:
            break
    inverse = np.linalg.inv(information[np.ix_(free, free)])
    errors = np.zeros(len(names))
    errors[free] = np.sqrt(np.diag(inverse @ variation[np.ix_(free, free)] @ inverse))
    return {
        name: (ANCHOR_ELO + theta[number] / _LOGITS_PER_ELO, errors[number] / _LOGITS_PER_ELO)
        for name, number in index.items()
    }


@dataclass(frozen=True, slots=True)
class Placement:
    """A snake's place: its Elo with its 95 % interval, and the games that say so.

    ``out_of_range`` is "above" or "below" where it won or lost nearly all its games against the last
    rung: the ladder then bounds its Elo on one side only, and the other is a guess.
    """

    elo: float
    low: float
    high: float
    games: int
    out_of_range: str
    results: tuple[PairResults, ...]

    def __str__(self) -> str:
        beyond = f", {self.out_of_range} the ladder" if self.out_of_range else ""
        return f"{self.elo:.0f} Elo ({self.low:.0f} to {self.high:.0f}{beyond})"


_PRIOR_ELO_SD = 700.0
"""Before any game, a snake is taken to stand this far (one standard deviation) from the middle."""

GAME_OVERHEAD_S = 0.1
"""CPU seconds that a game costs beside the moves of the rung."""


class PlacementRun:
    """Finds a snake's place: says whom to meet next, and what the games so far say.

    Rungs near the present estimate say the most; those that are quick and have been met seldom go
    first, so that no single style decides. ``around`` is where to look at first (an Elo; None: in
    the middle), and has no part in what the games say.
    """

    def __init__(self, ladder: Ladder, initial_elo: float | None = None) -> None:
        self.ladder = ladder
        self._around = initial_elo
        self.pairs = {rung.name: [0] * 5 for rung in ladder.rungs}
        self.pairs_requested = dict.fromkeys(self.pairs, 0)
        """Pairs handed out by `next_rung`, by rung; the number of the next one, too."""
        elo = [rung.elo for rung in ladder.rungs]
        self._grid = np.arange(min(elo) - 1500, max(elo) + 1500, 5.0)
        self._middle = (min(elo) + max(elo)) / 2

    def next_rung(self) -> Rung:
        """Whom to meet in the next pair of games."""
        begun = any(any(pairs) for pairs in self.pairs.values())
        here = self._estimate()[0] if begun or self._around is None else self._around
        rung = max(self.ladder.rungs, key=lambda rung: self._information_per_cost(rung, here))
        self.pairs_requested[rung.name] += 1
        return rung

    def add(self, rung: str, outcome: int) -> None:
        """A pair against ``rung`` ended so (for the snake that is placed, see `sprt.PAIR_SCORES`)."""
        self.pairs[rung][outcome] += 1
        self.pairs_requested[rung] = max(self.pairs_requested[rung], sum(self.pairs[rung]))

    @property
    def placement(self) -> Placement:
        """What is known by now."""
        elo, error = self._estimate()
        met = [
            PairResults("", name, tuple(pairs)) for name, pairs in self.pairs.items() if any(pairs)
        ]
        return Placement(
            elo=round(elo, 1),
            low=round(elo - Z95 * error, 1),
            high=round(elo + Z95 * error, 1),
            games=2 * sum(sum(meeting.pairs) for meeting in met),
            out_of_range=self._beyond(elo),
            results=tuple(met),
        )

    def _information_per_cost(self, rung: Rung, here: float) -> float:
        expected = float(_expected(here - rung.elo))
        cost = (1 + self.pairs_requested[rung.name]) * (GAME_OVERHEAD_S + rung.cpu_seconds_per_game)
        return expected * (1 - expected) / math.sqrt(cost)

    def _estimate(self) -> tuple[float, float]:
        """Elo and its standard error; the rungs' own Elo are what the scale is made of."""
        belief = -(((self._grid - self._middle) / _PRIOR_ELO_SD) ** 2) / 2
        played = [rung for rung in self.ladder.rungs if any(self.pairs[rung.name])]
        for rung in played:
            counts = np.array(self.pairs[rung.name])
            chance = _expected(self._grid - rung.elo)
            belief += 2 * counts @ PAIR_SCORES * np.log(chance)
            belief += 2 * counts @ (1 - PAIR_SCORES) * np.log1p(-chance)
        weight = np.exp(belief - belief.max())
        weight /= weight.sum()
        elo = float(weight @ self._grid)
        variance = float(weight @ (self._grid - elo) ** 2) * self._dispersion(elo, played)
        return elo, math.sqrt(variance)

    def _dispersion(self, elo: float, played: Sequence[Rung]) -> float:
        """How much more pairs vary than two independent games would; 1 at least."""
        spread = chance = 0.0
        for rung in played:
            expected = float(_expected(elo - rung.elo))
            counts = np.array(self.pairs[rung.name])
            spread += float(counts @ (PAIR_SCORES - expected) ** 2)
            chance += counts.sum() * expected * (1 - expected) / 2
        return max(1.0, spread / chance) if chance else 1.0

    def _beyond(self, elo: float) -> str:
        ranked = sorted(self.ladder.rungs, key=lambda rung: rung.elo)
        if elo > ranked[-1].elo + 200:
            return "above"
        return "below" if elo < ranked[0].elo - 200 else ""


def _expected(difference: float | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Any:
    return 1 / (1 + np.exp(-_LOGITS_PER_ELO * difference))


DEFAULT_SETTINGS = MatchSettings(move_time_ms=25)
"""What a snake that searches is given, unless something else is asked for."""


def run_placement(
    make: Factory,
    snakes: int = 2,
    *,
    precision_elo: float = 75.0,
    cpu_seconds: float = math.inf,
    conditions: MatchSettings = DEFAULT_SETTINGS,
    rungs: Ladder | None = None,
    seed: int = 1,
    on_update: Callable[[Placement], None] | None = None,
) -> Placement:
    """Play a snake against rungs, in this process, until its Elo is known to ± ``precision_elo``.

    Games are of ``snakes`` snakes (2 or 4), against all rungs or some (``rungs``). It stops earlier
    when ``cpu_seconds`` are spent, after the pair that spends them. ``tell`` is called with the
    placement after every pair. Raises ``ValueError`` for another number of snakes.
    """
    placing, spent = PlacementRun(rungs or load(snakes)), 0.0
    while True:
        rung = placing.next_rung()
        opponent = partial(named.make, rung.name)
        index = placing.pairs_requested[rung.name] - 1
        outcome, seconds = play_pair(conditions, make, opponent, seed, index, snakes)
        placing.add(rung.name, outcome)
        spent += seconds
        now = placing.placement
        if on_update is not None:
            on_update(now)
        if now.high - now.low <= 2 * precision_elo or spent >= cpu_seconds:
            return now
