"""The results of a tournament as a table, as JSON, and as database rows."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from battlesnake_server.arena.database import Seat, StoredGame, load_games, with_retries
from battlesnake_server.arena.ratings import Rating, Ratings, rank
from battlesnake_server.arena.tournament import (
    Entrant,
    GameResult,
    TournamentSettings,
    parse_entrants,
)

SURVIVED = "alive"
"""Key of `StandingsRow.endings` for games that the snake survived."""


def row(result: GameResult, tournament: int, labels: Sequence[str]) -> StoredGame:
    """Build the database row of a game.

    ``labels`` are the labels of the tournament's snakes.
    """
    return StoredGame(
        tournament_id=tournament,
        number=result.scheduled.number,
        uuid=result.uuid,
        seed=result.scheduled.seed,
        turns=result.turns,
        finished=result.finished,
        replay=result.replay,
        seats=[
            Seat(
                seat=seat,
                snake=labels[result.scheduled.seats[seat]],
                won=seat == result.winner,
                **{name: value for name, value in asdict(record).items() if name != "error"},
            )
            for seat, record in enumerate(result.seats)
        ],
    )


@dataclass(frozen=True, slots=True)
class StandingsRow:
    """One snake's results.

    Attributes:
        snake: The snake's label.
        games: Games played.
        wins: Games won.
        draws: Games drawn.
        turns: Mean game length, in turns.
        endings: Number of games by cause of elimination (``alive`` if it survived).
        p50: Median latency in milliseconds; None without a move.
        p99: 99th percentile of the latency in milliseconds; None without a move.
        problems: Number of late or invalid moves, by kind.
        rating: The snake's rating.
        moves: Number of moves requested.
        error: The first exception of a snake that ran in this process, with its location; "" if
            there was none in this run.
    """

    snake: str
    games: int
    wins: int
    draws: int
    turns: float
    endings: dict[str, int]
    p50: float | None
    p99: float | None
    problems: dict[str, int]
    rating: Rating
    moves: int = 0
    error: str = ""


@dataclass(slots=True)
class History:
    """The accumulated results of one snake.

    Attributes:
        ratings: (mu, sigma) after each game.
        openings: Number of games by opening moves.
        openings_won: Number of games won by opening moves.
        killers: Number of games by the snake that eliminated this snake.
        against: By opponent, the number of games in which this snake survived longer, equally
            long, and shorter.
    """

    games: int = 0
    wins: int = 0
    draws: int = 0
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
    """The results of games, updated game by game without a recount of earlier games.

    ``histories`` contains the results of every snake, by name.
    """

    def __init__(self) -> None:
        self.games = 0
        self.histories: dict[str, History] = {}
        self._ratings = Ratings()

    def add(self, game: StoredGame) -> None:
        """Add the result of a game."""
        self.games += 1
        ranks = rank([(seat.snake, not seat.cause, seat.eliminated_on) for seat in game.seats])
        self._ratings.add(ranks)
        drawn = len(game.seats) > 1 and not any(seat.won for seat in game.seats)
        for seat in game.seats:
            history = self.histories.setdefault(seat.snake, History())
            _count(history, game, seat)
            history.draws += drawn
            rating = self._ratings.of(seat.snake)
            history.ratings.append((rating.mu, rating.sigma))
        for (name, own_rank), (other, other_rank) in itertools.permutations(ranks, 2):
            if name != other:
                record = self.histories[name].against.setdefault(other, [0, 0, 0])
                record[(own_rank > other_rank) - (own_rank < other_rank) + 1] += 1

    def lines(self) -> list[StandingsRow]:
        """Return the rows of all snakes, the highest rating first."""
        lines = [
            _line(snake, history, self._ratings.of(snake))
            for snake, history in self.histories.items()
        ]
        return sorted(lines, key=lambda line: (-line.rating.mu, -line.wins, line.snake))


def summarize(
    games: Iterable[StoredGame], errors: Mapping[str, str] | None = None
) -> list[StandingsRow]:
    """Return the rows of all snakes by decreasing rating.

    ``errors`` maps labels to exceptions.
    """
    standings = Standings()
    for game in games:
        standings.add(game)
    return [replace(line, error=(errors or {}).get(line.snake, "")) for line in standings.lines()]


def _count(history: History, game: StoredGame, seat: Seat) -> None:
    history.games += 1
    history.wins += seat.won
    history.turns += game.turns
    history.endings[seat.cause or SURVIVED] += 1
    history.latencies.update(seat.latencies)
    history.problems.update(seat.problems)
    if seat.opening:
        history.openings[seat.opening] += 1
        history.openings_won[seat.opening] += seat.won
    if seat.killer is not None and seat.killer != seat.seat:
        history.killers[game.seats[seat.killer].snake] += 1


def _line(snake: str, history: History, rating: Rating) -> StandingsRow:
    return StandingsRow(
        snake=snake,
        games=history.games,
        wins=history.wins,
        draws=history.draws,
        turns=round(history.turns / history.games, 1),
        endings=dict(history.endings.most_common()),
        p50=_percentile(history.latencies, 50),
        p99=_percentile(history.latencies, 99),
        problems=dict(history.problems.most_common()),
        rating=rating,
        moves=history.latencies.total(),
    )


def _percentile(values: Counter[float], percent: float) -> float | None:
    """Compute ``numpy.percentile`` of values with counts."""
    if not values:
        return None
    ordered = np.array(sorted(values))
    # This is the last index of each value.
    last = np.cumsum([values[value] for value in ordered]) - 1
    position = percent / 100 * last[-1]
    low, high = ordered[np.searchsorted(last, [np.floor(position), np.ceil(position)])]
    return round(float(low + (high - low) * (position % 1)), 2)


_HEADINGS = ("snake", "rating", "games", "wins", "draws", "turns", "p50 ms", "p99 ms", "endings")


def table(lines: Sequence[StandingsRow]) -> str:
    """Format the results as text, one line per snake."""
    rows = [_HEADINGS, *(_row(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    texts = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, len(_HEADINGS) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts) + "\n"


def _row(line: StandingsRow) -> tuple[str, ...]:
    half = (line.rating.high - line.rating.low) / 2
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
        f"{line.turns:.1f}",
        "-" if line.p50 is None else f"{line.p50:.1f}",
        "-" if line.p99 is None else f"{line.p99:.1f}",
        endings,
    )


_MAX_FAILED_FRACTION = 0.05
"""Maximum fraction of failed moves.

Above this fraction, the results say little about the strength of a snake.
"""


def failures(lines: Iterable[StandingsRow], entrants: Iterable[Entrant]) -> tuple[str, bool]:
    """Describe the failed moves of snakes that ran in this process.

    Args:
        lines: The results.
        entrants: The snakes; snakes behind a URL are ignored.

    Returns:
        A line for each snake with failed moves, and whether a snake failed on more than
        `_MAX_FAILED_FRACTION` of its moves. Late moves of built-in snakes do not count, because
        only a busy machine causes them.
    """
    local = {entrant.label: entrant for entrant in entrants if not entrant.remote}
    texts, too_many = [], False
    for line in lines:
        failed = sum(line.problems.values())
        if line.snake not in local or not failed:
            continue
        kinds = ", ".join(f"{kind} {count}" for kind, count in line.problems.items())
        texts.append(
            f"{line.snake} failed on {failed} of {line.moves} moves, which the fallback played: "
            f"{line.error or kinds}\n"
        )
        late = 0 if local[line.snake].is_file else line.problems.get("timeout", 0)
        too_many |= failed - late > _MAX_FAILED_FRACTION * line.moves
    return "".join(texts), too_many


def to_json(lines: Sequence[StandingsRow]) -> list[dict[str, Any]]:
    """Convert the rows to JSON.

    ``rating`` contains mu, sigma and the 95% confidence interval.
    """
    return [
        asdict(line)
        | {"rating": asdict(line.rating) | {"ci_low": line.rating.low, "ci_high": line.rating.high}}
        for line in lines
    ]


def store(
    engine: Engine, result: GameResult, tournament: int, setup: TournamentSettings
) -> StoredGame:
    """Store a game.

    A game that another arena has already stored is kept instead.
    """
    labels = [entrant.label for entrant in parse_entrants(setup.snakes)]

    def add(session: Session) -> StoredGame:
        game = row(result, tournament, labels)
        session.add(game)
        session.commit()
        return game

    try:
        return with_retries(engine, add)
    except IntegrityError:
        sys.stderr.write(
            f"game {result.scheduled.number} is already stored: another arena played it\n"
        )
        return row(result, tournament, labels)


def note_errors(errors: dict[str, str], result: GameResult, setup: TournamentSettings) -> None:
    """Add the exceptions of a game to ``errors``, by label.

    Only the first exception of each snake is kept.
    """
    labels = [entrant.label for entrant in parse_entrants(setup.snakes)]
    for snake, seat in zip(result.scheduled.seats, result.seats, strict=True):
        if seat.error:
            errors.setdefault(labels[snake], seat.error)


def delete_games_without_replay(engine: Engine, tournament: int, replays: Path | None) -> None:
    """Delete games whose replay is empty or missing.

    Deleted games are played again. A power cut leaves such games if the file system had not written
    the replay. Nothing is deleted without ``replays``, and no game is deleted that was played
    without a replay.
    """
    if replays is None:
        return

    def is_lost(game: StoredGame) -> bool:
        if game.replay is None:
            return False
        beside = replays / Path(game.replay).name  # The directory may have been moved.
        found = [path for path in (Path(game.replay), beside) if path.is_file()]
        if any(path.stat().st_size for path in found):
            return False
        for path in found:
            path.unlink(missing_ok=True)
        return True

    def delete(session: Session) -> int:
        lost = [game for game in load_games(session, tournament) if is_lost(game)]
        for game in lost:
            session.delete(game)
        session.commit()
        return len(lost)

    if count := with_retries(engine, delete):
        sys.stderr.write(
            f"{count} games are played again: their replays are empty or missing in {replays}\n"
        )
