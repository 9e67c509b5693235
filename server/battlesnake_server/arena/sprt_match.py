"""A match of two sides that ends once it is known which is better.

The statistics are in `battlesnake_heuristics.rating.sprt`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from battlesnake_gym.snakes import FixedNodes, NodeLimitedStrategy
from battlesnake_heuristics.rating.match import points_of, side_of_seats
from battlesnake_heuristics.rating.sprt import EloEstimate, Sprt, estimate, pair_outcome
from battlesnake_server.arena.database import StoredGame
from battlesnake_server.arena.tournament import (
    ScheduledGame,
    TournamentSettings,
    local_factory,
    match_schedule,
    parse_entrants,
)


@dataclass(slots=True)
class MatchScore:
    """The results of a match's games, side 0 first.

    Pairs count in the order of the schedule, each when both its games and all pairs before it have
    been played: counting games as they end would count the short ones first.
    """

    points: dict[int, float] = field(default_factory=dict)
    """Of side 0, by the game's number."""
    total_move_ms: float = 0.0
    """Milliseconds of all moves."""

    @classmethod
    def of(cls, games: Sequence[StoredGame]) -> MatchScore:
        """The score of the games in the database."""
        score = cls()
        for game in games:
            score.add(game)
        return score

    def add(self, game: StoredGame) -> None:
        """Count a game."""
        self.points[game.number] = points_in(game)
        self.total_move_ms += sum(sum(seat.latencies) for seat in game.seats)

    def outcome(self, first: int) -> int:
        """Which kind the pair is that begins with the game ``first``."""
        return pair_outcome(self.points[first] + self.points[first + 1])

    @property
    def pairs(self) -> list[int]:
        """How many pairs had each of the five outcomes."""
        counts = [0] * 5
        for first in itertools.count(0, 2):
            if first not in self.points or first + 1 not in self.points:
                return counts
            counts[self.outcome(first)] += 1
        raise AssertionError("there are infinitely many numbers")

    @property
    def estimate(self) -> EloEstimate:
        """How much stronger side 0 seems."""
        return estimate(self.pairs)


def points_in(game: StoredGame) -> float:
    """What side 0 got in a game of a match: 1, 0, or 1/2."""
    if not game.finished:
        return 0.5
    out_on = [seat.eliminated_on if seat.cause else None for seat in game.seats]
    return points_of(side_of_seats(len(out_on), game.number), out_on)


def check(setup: TournamentSettings) -> None:
    """Raise ``ValueError`` where the set-up is not a match, or its budget means nothing."""
    if setup.is_match and len(setup.snakes) != 2:
        raise ValueError(f"--sprt compares two snakes, got {len(setup.snakes)}")
    if setup.is_match and (setup.num_snakes < 2 or setup.num_snakes % 2):
        raise ValueError(
            f"with --sprt two sides share the seats, so --per-game must be even, got "
            f"{setup.num_snakes}; try 2 or 4"
        )
    if not setup.has_search_limit:
        return
    if setup.nodes is not None and setup.move_time_ms is not None:
        raise ValueError("give --positions or --milliseconds, not both")
    everybody = parse_entrants(setup.snakes)
    if remote := [entrant.label for entrant in everybody if entrant.remote]:
        raise ValueError(
            f"{remote[0]} thinks elsewhere, where neither --positions nor --milliseconds of CPU "
            "time can be held; give --timeout instead"
        )
    if setup.nodes is not None and not any(
        isinstance(local_factory(entrant)(1), NodeLimitedStrategy | FixedNodes)
        for entrant in everybody
    ):
        raise ValueError(
            f"none of {', '.join(entrant.label for entrant in everybody)} searches, so "
            "--positions means nothing; leave it out, or give --milliseconds"
        )


def remaining_games(
    setup: TournamentSettings, most_games: int | None, score: MatchScore
) -> Iterator[ScheduledGame]:
    """The games of a match that were not played yet."""
    schedule = itertools.islice(match_schedule(setup.num_snakes, setup.seed), most_games)
    return (fixture for fixture in schedule if fixture.number not in score.points)


def is_over(score: MatchScore, sprt: Sprt, most_games: int | None) -> bool:
    """Whether the answer is known, or the most games were played."""
    pairs = score.pairs
    return sprt.decide(pairs) is not None or 2 * sum(pairs) >= (most_games or sys.maxsize)


def games_per_cpu_hour(games: int, milliseconds: float) -> str:
    """How many such games an hour of CPU time gives, that of snakes alone counted.

    >>> pace(2, 18_000)
    '400 games a CPU hour of thinking'
    """
    return f"{round(3.6e6 * games / max(milliseconds, 0.001))} games a CPU hour of thinking"


def show_progress(score: MatchScore, sprt: Sprt, bar: tqdm[Any], setup: TournamentSettings) -> None:
    """Show the result so far: on the bar, or without one in a line whenever pairs double."""
    pairs = score.pairs
    text = f"{estimate(pairs)}, LLR {float(sprt.llr(pairs)):.2f} of {_range(sprt)}"
    if setup.has_search_limit:
        text += f", {games_per_cpu_hour(len(score.points), score.total_move_ms)}"
    if not bar.disable:
        bar.set_postfix_str(text)
    elif sum(pairs).bit_count() == 1 and len(score.points) == 2 * sum(pairs):
        sys.stderr.write(f"{2 * sum(pairs)} games: {text}\n")


def _range(sprt: Sprt) -> str:
    low, high = sprt.bounds
    return f"{low:.2f} to {high:.2f}"


def to_json(games: Sequence[StoredGame], setup: TournamentSettings, sprt: Sprt) -> dict[str, Any]:
    """The match for scripts; ``verdict`` is "H1", "H0" or None, ``elo`` that of the first snake."""
    pairs = MatchScore.of(games).pairs
    seen = estimate(pairs)
    return {
        "snakes": [entrant.label for entrant in parse_entrants(setup.snakes)],
        "verdict": sprt.decide(pairs),
        "elo0": sprt.elo0,
        "elo1": sprt.elo1,
        "llr": round(float(sprt.llr(pairs)), 3),
        "bounds": [round(bound, 3) for bound in sprt.bounds],
        "games": 2 * seen.pairs,
        "score": seen.score,
        "elo": _finite(seen.elo),
        "low": _finite(seen.low),
        "high": _finite(seen.high),
        "pairs": pairs,
        "milliseconds": milliseconds(games),
    }


def _finite(elo: float) -> float | None:
    """JSON has no infinity."""
    return elo if np.isfinite(elo) else None


def milliseconds(games: Sequence[StoredGame]) -> list[float]:
    """What a move of each side took on average."""
    spent: list[list[float]] = [[], []]
    for game in games:
        for side, seat in zip(side_of_seats(len(game.seats), game.number), game.seats, strict=True):
            spent[side] += seat.latencies
    return [round(float(np.mean(values)), 2) if values else 0.0 for values in spent]


_VERDICTS = {
    "H1": "{one} is better than {other}: {elo1:g} Elo or more rather than {elo0:g}",
    "H0": "{one} is not {elo1:g} Elo better than {other}, rather {elo0:g} or less",
    None: "not decided",
}


def text(games: Sequence[StoredGame], setup: TournamentSettings, sprt: Sprt) -> str:
    """The match for people."""
    result = to_json(games, setup, sprt)
    one, other = result["snakes"]
    verdict = _VERDICTS[result["verdict"]].format(
        one=one, other=other, elo0=sprt.elo0, elo1=sprt.elo1
    )
    counts = result["pairs"]
    return (
        f"{verdict} (LLR {result['llr']:.2f} of {_range(sprt)})\n"
        f"{one} against {other}: {estimate(counts)}, "
        f"{result['score']:.1%} of the points in {result['games']} games\n"
        f"pairs of games by points: {_listed(counts)}\n"
        f"milliseconds a move: {result['milliseconds'][0]} against {result['milliseconds'][1]}\n"
    )


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(f"{points / 2:g} in {count}" for points, count in enumerate(counts))
