"""What a tournament came to, as a table for people and as JSON for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from server.database import Game, Seat
from server.ratings import Rating, rank, rate
from server.tournament import Result

ALIVE = "alive"


def row(result: Result, tournament: int, labels: Sequence[str]) -> Game:
    """A game as the database keeps it; ``labels`` are those of the tournament's snakes."""
    return Game(
        tournament_id=tournament,
        number=result.fixture.number,
        uuid=result.uuid,
        seed=result.fixture.seed,
        turns=result.turns,
        finished=result.finished,
        replay=result.replay,
        seats=[
            Seat(
                seat=seat,
                snake=labels[result.fixture.seats[seat]],
                won=seat == result.winner,
                **asdict(record),
            )
            for seat, record in enumerate(result.seats)
        ],
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One snake's results.

    ``turns`` is the mean turn on which its games ended; ``endings`` counts how it died (``alive``
    where it did not); ``p50`` and ``p99`` are latencies in milliseconds, None without a move;
    ``problems`` counts moves that were late or broken, by kind.
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


def summarise(games: Sequence[Game]) -> list[Line]:
    """The results of all snakes, the best rated first."""
    ratings = rate(_placing(game) for game in games)
    seats: dict[str, list[tuple[Game, Seat]]] = {}
    for game in games:
        for seat in game.seats:
            seats.setdefault(seat.snake, []).append((game, seat))
    lines = [_line(snake, played, ratings[snake]) for snake, played in seats.items()]
    return sorted(lines, key=lambda line: (-line.rating.mu, -line.wins, line.snake))


def _placing(game: Game) -> Sequence[tuple[str, int]]:
    return rank([(seat.snake, not seat.cause, seat.eliminated_on) for seat in game.seats])


def _line(snake: str, played: list[tuple[Game, Seat]], rating: Rating) -> Line:
    latencies = [value for _, seat in played for value in seat.latencies]
    problems: Counter[str] = Counter()
    for _, seat in played:
        problems.update(seat.problems)
    draws = [game for game, _ in played if len(game.seats) > 1 and not _won(game.seats)]
    return Line(
        snake=snake,
        games=len(played),
        wins=sum(seat.won for _, seat in played),
        draws=len(draws),
        turns=round(float(np.mean([game.turns for game, _ in played])), 1),
        endings=dict(Counter(seat.cause or ALIVE for _, seat in played).most_common()),
        p50=_percentile(latencies, 50),
        p99=_percentile(latencies, 99),
        problems=dict(problems.most_common()),
        rating=rating,
    )


def _won(seats: Iterable[Seat]) -> bool:
    return any(seat.won for seat in seats)


def _percentile(values: list[float], percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 2) if values else None


HEADINGS = ("snake", "rating", "games", "wins", "draws", "turns", "p50 ms", "p99 ms", "endings")


def table(lines: Sequence[Line]) -> str:
    """The results as text, a row for each snake."""
    rows = [HEADINGS, *(_row(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    texts = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, len(HEADINGS) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts) + "\n"


def _row(line: Line) -> tuple[str, ...]:
    half = (line.rating.high - line.rating.low) / 2
    endings = ", ".join(f"{cause} {count}" for cause, count in line.endings.items())
    if line.problems:
        endings += "; lost moves: "
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


def to_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The results for scripts; ``rating`` holds mu, sigma and the 95 % interval."""
    return [
        asdict(line)
        | {"rating": asdict(line.rating) | {"low": line.rating.low, "high": line.rating.high}}
        for line in lines
    ]
