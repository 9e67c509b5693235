"""A match between two sides that stops when a sequential test decides.

`battlesnake_heuristics.rating.sprt` implements the statistics.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from battlesnake_heuristics.rating.match import assign_sides, side0_points
from battlesnake_heuristics.rating.sprt import EloEstimate, Sprt, pair_outcome
from battlesnake_server.arena.database import StoredGame
from battlesnake_server.arena.tournament import TournamentSettings

_VERDICT_TEXTS = {
    "H1": "{one} is stronger than {other}: an Elo difference of {elo1:g} or more is accepted",
    "H0": "{one} is not {elo1:g} Elo stronger than {other}: {elo0:g} or less is accepted",
    None: "undecided",
}


@dataclass(slots=True)
class MatchScore:
    """Scores and move times of the games in a match.

    Pairs are counted in schedule order. A pair is counted once both of its games and all earlier
    pairs have been played. Counting games as they end would favor short games.
    """

    points: dict[int, float] = field(default_factory=dict)
    """Score of side 0 by game number."""
    move_ms: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Total time of the moves of each side, in milliseconds."""
    moves: list[int] = field(default_factory=lambda: [0, 0])
    """Number of moves of each side."""

    @classmethod
    def from_games(cls, games: Sequence[StoredGame]) -> MatchScore:
        """Compute the score from the games of a database."""
        score = cls()
        for game in games:
            score.add_game(game)
        return score

    def add_game(self, game: StoredGame) -> None:
        """Add the result of a game."""
        sides = assign_sides(len(game.seats), game.number)
        eliminated_on = [seat.eliminated_on if seat.cause else None for seat in game.seats]
        self.points[game.number] = side0_points(sides, eliminated_on)
        for side, seat in zip(sides, game.seats, strict=True):
            self.move_ms[side] += sum(seat.latencies)
            self.moves[side] += len(seat.latencies)

    def outcome(self, first: int) -> int:
        """Return the outcome (0 to 4) of the game pair that starts with game ``first``."""
        return pair_outcome(self.points[first] + self.points[first + 1])

    @property
    def pair_counts(self) -> list[int]:
        """The number of game pairs with each of the five outcomes."""
        counts, first = [0] * 5, 0
        while first in self.points and first + 1 in self.points:
            counts[self.outcome(first)] += 1
            first += 2
        return counts

    def is_over(self, sprt: Sprt, max_games: int | None) -> bool:
        """Return whether the match is over.

        A match ends when the test has decided, or the maximum number of games has been played.
        """
        pairs = self.pair_counts
        return sprt.decide(pairs) is not None or 2 * sum(pairs) >= (max_games or sys.maxsize)

    def show_progress(self, sprt: Sprt, bar: tqdm[Any], settings: TournamentSettings) -> None:
        """Show the current result on the progress bar.

        If the bar is disabled, a line is printed whenever the number of pairs has doubled.
        """
        pairs = self.pair_counts
        ratio = float(sprt.log_likelihood_ratios(pairs))
        text = f"{EloEstimate.from_pairs(pairs)}, LLR {ratio:.2f} of {_format_llr_bounds(sprt)}"
        if settings.has_search_limit:
            text += f", {format_games_per_cpu_hour(len(self.points), sum(self.move_ms))}"
        if not bar.disable:
            bar.set_postfix_str(text)
        elif sum(pairs).bit_count() == 1 and len(self.points) == 2 * sum(pairs):
            sys.stderr.write(f"{2 * sum(pairs)} games: {text}\n")

    def to_dict(self, settings: TournamentSettings, sprt: Sprt) -> dict[str, Any]:
        """Convert the match to a dict for JSON output.

        ``verdict`` is "H1", "H0" or None; ``score`` and ``elo`` refer to the first snake.
        """
        pairs = self.pair_counts
        estimated = EloEstimate.from_pairs(pairs)
        return {
            "snakes": settings.labels,
            "verdict": sprt.decide(pairs),
            "elo0": sprt.elo0,
            "elo1": sprt.elo1,
            "llr": round(float(sprt.log_likelihood_ratios(pairs)), 3),
            "llr_bounds": [round(bound, 3) for bound in sprt.log_likelihood_bounds],
            "games": 2 * estimated.pairs,
            "score": estimated.score,
            "elo": _finite_or_none(estimated.elo),
            "ci_low": _finite_or_none(estimated.low),
            "ci_high": _finite_or_none(estimated.high),
            "pairs": pairs,
            "mean_move_ms": [
                round(total / (moves or 1), 2)
                for total, moves in zip(self.move_ms, self.moves, strict=True)
            ],
        }

    def format(self, settings: TournamentSettings, sprt: Sprt) -> str:
        """Format the result of the match as text."""
        result = self.to_dict(settings, sprt)
        one, other = result["snakes"]
        verdict = _VERDICT_TEXTS[result["verdict"]].format(
            one=one, other=other, elo0=sprt.elo0, elo1=sprt.elo1
        )
        counts = result["pairs"]
        points = ", ".join(f"{points / 2:g} in {count}" for points, count in enumerate(counts))
        return (
            f"{verdict} (LLR {result['llr']:.2f} of {_format_llr_bounds(sprt)})\n"
            f"{one} against {other}: {EloEstimate.from_pairs(counts)}, "
            f"score {result['score']:.1%} in {result['games']} games\n"
            f"game pairs by points: {points}\n"
            "mean time per move: "
            f"{result['mean_move_ms'][0]} ms against {result['mean_move_ms'][1]} ms\n"
        )


def format_games_per_cpu_hour(games: int, milliseconds: float) -> str:
    """Format the number of games per hour of CPU time.

    ``milliseconds`` is the total CPU time of the snakes.

    >>> format_games_per_cpu_hour(2, 18_000)
    '400 games per CPU hour'
    """
    return f"{round(3.6e6 * games / max(milliseconds, 0.001))} games per CPU hour"


def _format_llr_bounds(sprt: Sprt) -> str:
    """Format the bounds of the log-likelihood ratio."""
    low, high = sprt.log_likelihood_bounds
    return f"{low:.2f} to {high:.2f}"


def _finite_or_none(elo: float) -> float | None:
    """Return a finite Elo difference, or None for infinity.

    JSON does not support infinity.
    """
    return elo if np.isfinite(elo) else None
