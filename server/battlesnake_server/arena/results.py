"""The results of a tournament as a table and as JSON."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from battlesnake_gym.common.command_line import align_columns
from battlesnake_server.arena.database import Seat, StoredGame
from battlesnake_server.arena.ratings import Rating, Ratings, rank_snakes

SURVIVED_KEY = "alive"
"""Key of `StandingsRow.endings` for games that the snake survived."""


_POINTS = (2.0, 1.0)
"""Points of the first places, as in Battlesnake Blackout; later places have none."""


def _placement_points(ranks: Sequence[int]) -> list[float]:
    """Return the points of each seat: 2 for the first place, 1 for the second, 0 for the others.

    Seats that tie share the points of their places.

    Args:
        ranks: Rank of each seat, as `ratings.rank_snakes` returns them.

    >>> _placement_points([0, 1, 2, 3]), _placement_points([0, 1, 1, 2])
    ([2.0, 1.0, 0.0, 0.0], [2.0, 0.5, 0.5, 0.0])
    """
    places = sorted(ranks)
    points = dict(zip(range(len(ranks)), _POINTS, strict=False))
    first = [places.index(rank) for rank in ranks]
    return [
        sum(points.get(place + tied, 0.0) for tied in range(count)) / count
        for rank, place in zip(ranks, first, strict=True)
        for count in [places.count(rank)]
    ]


@dataclass(frozen=True, slots=True)
class StandingsRow:
    """Results of one snake.

    Attributes:
        snake: The snake's label.
        games: Games played.
        wins: Games won.
        draws: Games drawn.
        points: Points by placement (`_placement_points`).
        turns: Mean game length, in turns.
        endings: Number of games, keyed by cause of elimination (``alive`` for survival).
        p50: Median latency in milliseconds; None if no move was requested.
        p99: 99th percentile of the latency in milliseconds; None if no move was requested.
        problems: Number of late or invalid moves, keyed by kind.
        rating: The snake's rating.
        moves: Number of moves requested.
        error: Text of the first exception of a snake in this process, with its location; "" if no
            exception occurred in this run.
    """

    snake: str
    games: int
    wins: int
    draws: int
    points: float
    turns: float
    endings: dict[str, int]
    p50: float | None
    p99: float | None
    problems: dict[str, int]
    rating: Rating
    moves: int = 0
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a dict for JSON output.

        ``rating`` contains mu, sigma and the 95% confidence interval.
        """
        bounds = {"ci_low": self.rating.ci_low, "ci_high": self.rating.ci_high}
        return asdict(self) | {"rating": asdict(self.rating) | bounds}


@dataclass(slots=True)
class History:
    """Accumulated results of one snake.

    Attributes:
        ratings: Rating (mu, sigma) after each game.
        openings: Number of games, keyed by opening moves.
        openings_won: Number of wins, keyed by opening moves.
        killers: Number of games, keyed by the snake that eliminated this snake.
        against: Numbers of games in which this snake survived longer, equally long and shorter,
            keyed by opponent.
    """

    games: int = 0
    wins: int = 0
    draws: int = 0
    points: float = 0.0
    turns: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    latencies: Counter[float] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    ratings: list[tuple[float, float]] = field(default_factory=list)
    openings: Counter[str] = field(default_factory=Counter)
    openings_won: Counter[str] = field(default_factory=Counter)
    killers: Counter[str] = field(default_factory=Counter)
    against: dict[str, list[int]] = field(default_factory=dict)


class Standings:
    """Results of all snakes, updated after every game.

    ``histories`` maps the name of each snake to its results.
    """

    def __init__(self, games: Iterable[StoredGame] = ()) -> None:
        self.games = 0
        self.histories: dict[str, History] = {}
        self._ratings = Ratings()
        for game in games:
            self.add_game(game)

    def add_game(self, game: StoredGame) -> None:
        """Add the result of a game."""
        self.games += 1
        ranks = rank_snakes(
            [(seat.snake, not seat.cause, seat.eliminated_on) for seat in game.seats]
        )
        self._ratings.add_game(ranks)
        points = _placement_points([rank for _, rank in ranks])
        winners = [seat.snake for seat in game.seats if seat.won]
        for seat, earned in zip(game.seats, points, strict=True):
            history = self.histories.setdefault(seat.snake, History())
            _update_history(history, game, seat, seat.snake in winners)
            history.draws += game.is_draw
            history.points += earned
            rating = self._ratings.get(seat.snake)
            history.ratings.append((rating.mu, rating.sigma))
        for (name, own_rank), (other, other_rank) in itertools.permutations(ranks, 2):
            if name != other:
                record = self.histories[name].against.setdefault(other, [0, 0, 0])
                record[(own_rank > other_rank) - (own_rank < other_rank) + 1] += 1

    def sorted_rows(self) -> list[StandingsRow]:
        """Return the rows of all snakes in order of decreasing rating."""
        lines = []
        for snake, history in self.histories.items():
            p50, p99 = _percentiles(history.latencies, 50, 99)
            row = StandingsRow(
                snake=snake,
                games=history.games,
                wins=history.wins,
                draws=history.draws,
                points=round(history.points, 2),
                turns=round(history.turns / history.games, 1),
                endings=dict(history.endings.most_common()),
                p50=p50,
                p99=p99,
                problems=dict(history.problems.most_common()),
                rating=self._ratings.get(snake),
                moves=history.latencies.total(),
            )
            lines.append(row)
        return sorted(lines, key=lambda line: (-line.rating.mu, -line.wins, line.snake))


def compute_standings(
    games: Iterable[StoredGame], errors: Mapping[str, str] | None = None
) -> list[StandingsRow]:
    """Return the rows of all snakes in order of decreasing rating, as on the pages.

    ``errors`` maps labels to exception texts.
    """
    in_order_of_storage = sorted(games, key=lambda game: game.id or 0)
    return [
        replace(line, error=(errors or {}).get(line.snake, ""))
        for line in Standings(in_order_of_storage).sorted_rows()
    ]


def _update_history(history: History, game: StoredGame, seat: Seat, won: bool) -> None:
    """Add one seat of a game to the results of its snake, which may have won in another seat."""
    history.games += 1
    history.wins += won
    history.turns += game.turns
    history.endings[seat.cause or SURVIVED_KEY] += 1
    history.latencies.update(seat.latencies)
    history.problems.update(seat.problems)
    if seat.opening:
        history.openings[seat.opening] += 1
        history.openings_won[seat.opening] += won
    if seat.killer is not None and seat.killer != seat.seat:
        history.killers[game.seats[seat.killer].snake] += 1


def _percentiles(values: Counter[float], *percents: float) -> list[float | None]:
    """Return percentiles of a multiset, rounded to two decimals; None if empty."""
    if not values:
        return [None] * len(percents)
    repeated = np.repeat(list(values), list(values.values()))
    return [round(float(value), 2) for value in np.percentile(repeated, percents)]


_TABLE_HEADINGS = ("snake", "rating", "games", "wins", "draws", "points", "turns", "p50 ms",
                   "p99 ms", "endings")  # fmt: skip


def format_table(lines: Sequence[StandingsRow], points: bool = False) -> str:
    """Format the results as a text table with one line per snake.

    Args:
        lines: The results.
        points: Whether to show the points by placement, and to sort by the points.
    """
    if points:
        lines = sorted(lines, key=lambda line: -line.points)
    rows: list[tuple[str, ...]] = [_TABLE_HEADINGS, *(_format_row(line) for line in lines)]
    if not points:
        column = _TABLE_HEADINGS.index("points")
        rows = [row[:column] + row[column + 1 :] for row in rows]
    return align_columns(rows, right=range(1, len(rows[0]) - 1))


def _format_row(line: StandingsRow) -> tuple[str, ...]:
    """Return the cells of one row of the text table."""
    half = (line.rating.ci_high - line.rating.ci_low) / 2
    endings = ", ".join(f"{cause} {count}" for cause, count in line.endings.items())
    if line.problems:
        endings += "; failed moves: "
        endings += ", ".join(f"{kind} {count}" for kind, count in line.problems.items())
    return (
        line.snake,
        f"{line.rating.mu:.1f} ± {half:.1f}",
        str(line.games),
        str(line.wins),
        str(line.draws),
        f"{line.points:g}",
        f"{line.turns:.1f}",
        "-" if line.p50 is None else f"{line.p50:.1f}",
        "-" if line.p99 is None else f"{line.p99:.1f}",
        endings,
    )
