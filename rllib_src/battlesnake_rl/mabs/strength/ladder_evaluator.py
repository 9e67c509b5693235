"""How strong what is trained is, shown while it trains: duels against the rungs of the ladder.

Beside training, for a `SHARE` of its CPU time and no more, `LadderEvaluator` plays whole games of what is
trained against snakes of known Elo, many boards at once, and keeps the weights that did best. At
the end these and the last ones play again, and the better stay. This shows what the turns alive
among its own copies do not.

Rungs were measured in standard duels on 11x11. In other games win rates say what they say, and Elo
only shows which of two is stronger.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.files import save_arrays
from battlesnake_heuristics.rating import ladder, sprt
from battlesnake_heuristics.rating.ladder import (
    GAME_OVERHEAD_S,
    Ladder,
    PairResults,
    Placement,
    PlacementRun,
    Rung,
)
from battlesnake_heuristics.rule_based.pipeline import PipelineStep
from battlesnake_rl.mabs.policy.policy_loader import BEST_FILE, ScoreFn, Weights, read_best
from battlesnake_rl.mabs.strength.batched_games import play_pairs

DEFAULT_CPU_FRACTION = 0.05
"""The part of training's CPU time that the games may take."""

_MAX_RUNG_CPU_S = 0.4
"""Rungs that take more CPU time for their moves in a game are not met in training."""

MIN_MEASUREMENT_S = 2.5
"""CPU time that is worth beginning with: with less the interval says nothing."""

_MEASUREMENT_GROWTH = 0.25
"""Each measurement may take this part of all before it together: they become longer, not many."""

_FINAL_FRACTION = 0.3
"""The part of the games' time that is left for the end, where the strongest and the last weights
play again: the best of many short measurements was lucky too."""

_LONG_TRAINING_S, _FINAL_MAX_FRACTION, _FINAL_MAX_S = 60.0, 0.25, 60.0
"""After as many CPU seconds of training the games at the end may take a quarter of that time, up to
a minute, so that two measurements are within some 50 Elo."""

_TARGET_PRECISION_ELO = 40.0
"""Elo to either side at which a measurement is precise enough."""

PAIRS_AT_ONCE = 8
"""Pairs of games that are played at once."""

_STRENGTH_FILE = "strength.json"
"""In a checkpoint: all measurements, beside the strongest weights (`policies.BEST_FILE`)."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One placement on the ladder, after ``cpu_minutes`` of training.

    ``pairs``: counts of pairs of games by rung (`sprt.PAIR_SCORES`).
    """

    cpu_minutes: float
    elo: float
    low: float
    high: float
    games: int
    out_of_range: str
    pairs: dict[str, list[int]]

    @classmethod
    def of(cls, placement: Placement, cpu_minutes: float) -> Measurement:
        """What a placement says."""
        met = {meeting.other: list(meeting.pairs) for meeting in placement.results}
        elo, low, high = placement.elo, placement.low, placement.high
        return cls(
            round(cpu_minutes, 3), elo, low, high, placement.games, placement.out_of_range, met
        )

    @property
    def placement(self) -> Placement:
        """As the ladder has it."""
        met = tuple(PairResults("", rung, tuple(pairs)) for rung, pairs in self.pairs.items())
        return Placement(self.elo, self.low, self.high, self.games, self.out_of_range, met)

    def scores(self) -> dict[str, tuple[float, float, float]]:
        """By rung, the share of the points (a draw is half a win) and its 95 % interval."""
        return {rung: score_with_interval(pairs) for rung, pairs in self.pairs.items()}

    def score(self) -> float:
        """The share of the points against all rungs together."""
        return score_with_interval(
            [sum(pairs) for pairs in zip(*self.pairs.values(), strict=True)]
        )[0]

    def results(self) -> dict[str, Any]:
        """As training reports it."""
        scores = self.scores()
        return {
            "elo": self.elo,
            "elo_low": self.low,
            "elo_high": self.high,
            "elo_games": self.games,
            "ladder_score": self.score(),
            "elo_cpu_minutes": self.cpu_minutes,
            "score": {rung: score for rung, (score, _, _) in scores.items()},
            "score_low": {rung: low for rung, (_, low, _) in scores.items()},
            "score_high": {rung: high for rung, (_, _, high) in scores.items()},
        }


_NO_MEASUREMENT = {
    "elo": math.nan,
    "elo_low": math.nan,
    "elo_high": math.nan,
    "elo_games": math.nan,
    "elo_cpu_minutes": math.nan,
    "elo_best": math.nan,
    "ladder_score": math.nan,
}
"""What is reported before the first measurement."""

CSV_COLUMNS = {
    "cpu_minutes": "cpu_minutes",
    **{name: name for name in _NO_MEASUREMENT},
    "ladder_cpu_fraction": "ladder_cpu_fraction",
    **{
        f"score_{rung}{end}": f"score{end}/{rung}"
        for rung in ladder.RUNG_NAMES
        for end in ("", "_low", "_high")
    },
}
"""Columns of ``progress.csv``, and the results that they show."""


@dataclass
class StrengthHistory:
    """All measurements of a run and what they cost; goes into checkpoints as `_STRENGTH_FILE`.

    Times are CPU seconds; those of training have those of the games in them.
    """

    measurements: list[Measurement] = field(default_factory=list)
    best: int | None = None
    """The number of the strongest: the one whose Elo is highest at the lower end of its interval,
    so that luck in a few games decides nothing."""
    training_seconds: float = 0.0
    ladder_seconds: float = 0.0

    def add(self, measurement: Measurement) -> bool:
        """Note a measurement; True where it is the best."""
        self.measurements.append(measurement)
        if self.best is None or measurement.low > self.measurements[self.best].low:
            self.best = len(self.measurements) - 1
        return self.best == len(self.measurements) - 1

    def results(self) -> dict[str, Any]:
        """What training reports of it in each iteration."""
        results = dict(_NO_MEASUREMENT)
        if self.best is not None:
            results |= self.measurements[-1].results()
            results["elo_best"] = self.measurements[self.best].elo
        share = self.ladder_seconds / max(self.training_seconds, 1e-9)
        return results | {"cpu_minutes": self.training_seconds / 60, "ladder_cpu_fraction": share}

    def save(self, folder: Path) -> None:
        """Write it into a checkpoint."""
        (folder / _STRENGTH_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def of(cls, folder: Path) -> StrengthHistory:
        """That of a checkpoint; empty where it has none."""
        path = folder / _STRENGTH_FILE
        if not path.is_file():
            return cls()
        kept = json.loads(path.read_text())
        measurements = [
            Measurement(**old_runs.convert_measurement(one)) for one in kept.pop("measurements")
        ]
        return cls(measurements=measurements, **kept)

    def line(self) -> str:
        """How strong the strongest is, in a line."""
        if self.best is None:
            return "not measured; `battlesnake-gym evaluate` plays it on the ladder"
        best = self.measurements[self.best]
        return f"{best.placement} by {best.games} duels on the ladder"

    def table(self) -> str:
        """The strongest, rung by rung, as text."""
        if self.best is None:
            return (
                f"strength: not measured, since {self.training_seconds:.0f} s of CPU time allow no "
                "games; train for longer, or play it with `battlesnake-gym evaluate`"
            )
        best = self.measurements[self.best]
        text = rung_table(best.placement)
        return (
            f"{text}\nkept: what played so after {best.cpu_minutes:.1f} of "
            f"{self.training_seconds / 60:.1f} CPU minutes, of {len(self.measurements)} "
            f"measurements; their games took "
            f"{self.ladder_seconds / max(self.training_seconds, 1e-9):.1%} of the CPU time"
        )


def score_with_interval(pairs: Sequence[int]) -> tuple[float, float, float]:
    """The share of the points (a draw is half a win) and the ends of its 95 % interval.

    >>> score_with_interval([0, 1, 2, 5, 12])
    (0.85, 0.704, 0.933)
    """
    seen = sprt.estimate(pairs)
    low, high = sprt.expected_score(seen.low), sprt.expected_score(seen.high)
    return seen.score, round(low, 3), round(high, 3)


def rung_table(placement: Placement, snakes: int = 2) -> str:
    """A snake's place, and its share of the points against each rung, the weakest first."""
    met = {meeting.other: meeting.pairs for meeting in placement.results}
    rungs = sorted(ladder.load(snakes).rungs, key=lambda rung: rung.elo)
    lines = [
        f"strength: {placement} in {placement.games} duels; win rates (a draw is half a win) and "
        "their 95 % intervals:",
        f"  {'against':<20}   elo  games  win rate",
    ]
    for rung in rungs:
        if rung.name in met:
            games = 2 * sum(met[rung.name])
            rate, low, high = score_with_interval(met[rung.name])
            lines.append(
                f"  {rung.name:<20}{rung.elo:>6.0f}  {games:>5}  {rate:>8.0%} "
                f"({low:.0%} to {high:.0%})"
            )
    return "\n".join(lines)


def as_json(placement: Placement) -> dict[str, Any]:
    """What `rung_table` shows, for JSON."""
    return {
        "elo": placement.elo,
        "ci_low": placement.low,
        "ci_high": placement.high,
        "out_of_range": placement.out_of_range,
        "games": placement.games,
        "rungs": [
            {
                "name": meeting.other,
                "games": 2 * sum(meeting.pairs),
                **dict(
                    zip(
                        ("score", "ci_low", "ci_high"),
                        score_with_interval(meeting.pairs),
                        strict=True,
                    )
                ),
            }
            for meeting in placement.results
        ],
    }


def check_share(share: Any) -> None:
    """Refuse an impossible part of the CPU time.

    Raises:
        ValueError: saying what is possible.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 0.5:
        raise ValueError(
            f"ladder_cpu_fraction must be between 0 (no games) and 0.5 of the CPU time, got {share!r}; "
            f"the default is {DEFAULT_CPU_FRACTION}"
        )


def fast_rungs(seconds: float = _MAX_RUNG_CPU_S) -> Ladder:
    """The ladder of duels, without rungs that think for longer than ``seconds`` a game."""
    whole = ladder.load(2)
    return Ladder(2, tuple(rung for rung in whole.rungs if rung.cpu_seconds_per_game <= seconds))


def place_policy(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    *,
    seed: int,
    cpu_seconds: float = math.inf,
    games: float = math.inf,
    interval: float = _TARGET_PRECISION_ELO,
    around: float | None = None,
    rungs: Ladder | None = None,
    rules: Sequence[PipelineStep] = (),
    tell: Callable[[Placement], None] = lambda placement: None,
) -> tuple[Placement, float]:
    """A policy's place on the ladder, and the CPU seconds of this process that it took to find.

    ``around`` is an Elo to begin at (None: in the middle of the ladder). It ends when the Elo is
    known to ± ``interval``, or after ``games`` games (pairs are played to the end), and before it
    would take more than ``cpu_seconds``, but `PAIRS_AT_ONCE` pairs are always played.
    ``rules`` are those over the policy (`matches.play`). ``tell`` gets the placement as games end.
    """
    placing = PlacementRun(rungs or fast_rungs(), around)
    began, cost_factor, played = time.process_time(), 1.0, 0
    while True:
        left = math.ceil(min(games / 2 - played, PAIRS_AT_ONCE))
        chosen = [placing.next_rung() for _ in range(left)]
        guess = _seconds(chosen)
        spent = time.process_time() - began
        if played and spent + cost_factor * guess > cpu_seconds:
            return placing.placement, spent
        names = [rung.name for rung in chosen]
        outcomes = play_pairs(values, env_config, names, seed, played, rules)
        for rung, outcome in zip(chosen, outcomes, strict=True):
            placing.add(rung.name, outcome)
        played += len(chosen)
        took = time.process_time() - began - spent
        cost_factor = max(took / guess, 0.1)
        now = placing.placement
        tell(now)
        if now.high - now.low <= 2 * interval or 2 * played >= games:
            return now, spent + took


def _seconds(rungs: Sequence[Rung]) -> float:
    """CPU seconds that a pair against each of these takes, on the processor of the ladder."""
    return sum(2 * (GAME_OVERHEAD_S + rung.cpu_seconds_per_game) for rung in rungs)


class LadderEvaluator:
    """Plays the ladder beside a training, within a share of its CPU time, and keeps the best.

    ``clock`` returns the CPU seconds of all that trains; `follow` is called once an iteration.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        clock: Callable[[], float],
        *,
        share: float = DEFAULT_CPU_FRACTION,
        seed: int | None = None,
    ) -> None:
        check_share(share)
        self.record = StrengthHistory()
        self.best_weights: Weights | None = None
        self._env_config = env_config
        self._share = share
        self._seed = seed or 0
        self._clock = clock
        self._began = clock()
        self._trained_before = 0.0

    def after_iteration(
        self,
        weights: Callable[[], Weights],
        player: Callable[[Weights], ScoreFn],
        *,
        at_end: bool = False,
    ) -> dict[str, Any]:
        """Play, if there is time for it; returns what an iteration reports of the strength.

        ``weights`` gives those that would be exported now, and ``player`` makes a policy of any.
        ``at_end`` what is left of the time is spent, if that is enough to say anything, and after
        a training of `LONG_ENOUGH` more than that.
        """
        record = self.record
        record.training_seconds = self._trained_before + self._clock() - self._began
        share = self._share if at_end else self._share * (1 - _FINAL_FRACTION)
        cpu_budget_s = share * record.training_seconds - record.ladder_seconds
        if at_end and self._share and record.training_seconds >= _LONG_TRAINING_S:
            cpu_budget_s = max(
                cpu_budget_s, min(_FINAL_MAX_S, _FINAL_MAX_FRACTION * record.training_seconds)
            )
        wanted = (
            MIN_MEASUREMENT_S
            if at_end
            else max(MIN_MEASUREMENT_S, _MEASUREMENT_GROWTH * record.ladder_seconds)
        )
        if cpu_budget_s >= wanted:
            best = record.best if at_end and cpu_budget_s >= 2 * MIN_MEASUREMENT_S else None
            if best is not None and self.best_weights is not None:
                cpu_budget_s /= 2
                minutes = record.measurements[best].cpu_minutes
                again = self._measure(self.best_weights, player, cpu_budget_s, minutes)
                record.measurements[best] = again
            last, minutes = weights(), record.training_seconds / 60
            if record.add(self._measure(last, player, cpu_budget_s, minutes)):
                self.best_weights = last
            record.training_seconds = self._trained_before + self._clock() - self._began
        return record.results()

    def _measure(
        self,
        weights: Weights,
        player: Callable[[Weights], ScoreFn],
        cpu_seconds: float,
        cpu_minutes: float,
    ) -> Measurement:
        """Of weights after ``cpu_minutes`` of training, by games of ``cpu_seconds``."""
        record = self.record
        placement, spent = place_policy(
            player(weights),
            self._env_config,
            seed=self._seed + len(record.measurements),
            cpu_seconds=cpu_seconds,
            around=record.measurements[-1].elo if record.measurements else None,
        )
        record.ladder_seconds += spent
        return Measurement.of(placement, cpu_minutes)

    def save(self, folder: Path) -> None:
        """Write record and best weights into a checkpoint."""
        self.record.save(folder)
        if self.best_weights is not None:
            save_arrays(folder / BEST_FILE, **self.best_weights)

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint; one without a record begins one."""
        self.record = StrengthHistory.of(folder)
        self.best_weights = read_best(folder)
        if self.best_weights is None:
            self.record.best = None
            self.record.measurements.clear()
        self._trained_before = self.record.training_seconds
        self._began = self._clock()
