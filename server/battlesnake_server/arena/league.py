"""A standing league: pairing, health checks with cooldowns, and seasons.

All persistent state is in the database (`database.Tournament` for a season, `database.StoredGame`,
`LeagueSnake`) and is read at startup. A league that was killed therefore resumes.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from sqlalchemy import select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from battlesnake_heuristics.rating.match import start_seed
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.database import (
    LeagueSnake,
    Seat,
    StoredGame,
    Tournament,
    with_retries,
)
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.ratings import Ratings, rank
from battlesnake_server.arena.results import store
from battlesnake_server.arena.tournament import GameResult, ScheduledGame, TournamentSettings

_MIN_CLOCK_CHANGE_S = 60.0
"""Minimum change of the system clock that is logged, in seconds.

Smaller changes are normal corrections.
"""

_ENDED_COOLDOWN = datetime(1970, 1, 1)
"""End of a cooldown that has ended, independent of the process clock."""

_LEAGUE_POLL_INTERVAL_S = 2.0
"""Maximum interval between two polls by the league, in seconds.

The league polls the clock and the operator's changes.
"""

_MIN_COOLDOWN, _MAX_COOLDOWN = timedelta(minutes=1), timedelta(hours=1)
"""Minimum and maximum cooldown of an unhealthy snake.

Each consecutive cooldown doubles.
"""

PAIRING_MEMORY_GAMES = 10
"""Number of a snake's latest games that reduce rematches.

The opponents in these games are less likely to be paired with the snake again.
"""

_REMATCH_PENALTY = 5.0
"""Rating distance added by each common game among the latest games."""

Play = Callable[[TournamentSettings, ScheduledGame, Path | None], Future[GameResult]]
"""Function that starts a game and returns the future result."""

HealthCheck = Callable[[Sequence[str]], Sequence[str]]
"""Function that checks snakes and returns the problem of each snake.

The problem of a healthy snake is "".
"""


class Clock(Protocol):
    """A league's clock."""

    def now(self) -> datetime:
        """Return the current time (UTC, without a time zone)."""
        ...

    def wait(self, seconds: float, games: Collection[Future[GameResult]]) -> None:
        """Wait up to ``seconds``, but at most until one of ``games`` ends."""
        ...


class SteadyClock:
    """The system clock when the league starts, continued by a monotonic clock.

    If the system clock changes while the league runs, the league neither stops games nor ends the
    season. The change is logged.
    """

    def __init__(self) -> None:
        self._began = _system_time()
        self._began_s = _monotonic_s()
        self._logged_change_s = 0.0

    def now(self) -> datetime:
        """Return the current time (UTC, without a time zone)."""
        now = self._began + timedelta(seconds=_monotonic_s() - self._began_s)
        change_s = (_system_time() - now).total_seconds()
        if abs(change_s - self._logged_change_s) >= _MIN_CLOCK_CHANGE_S:
            self._logged_change_s = change_s
            log(
                f"the system clock differs by {change_s:+.0f} s from the elapsed time; game rate, "
                "cooldowns and seasons follow the elapsed time until the league is restarted"
            )
        return now

    def wait(self, seconds: float, games: Collection[Future[GameResult]]) -> None:
        """Wait as described in `Clock.wait`, but at most `_LEAGUE_POLL_INTERVAL_S`."""
        seconds = min(seconds, _LEAGUE_POLL_INTERVAL_S)
        if games:
            wait(games, seconds, FIRST_COMPLETED)
        else:
            time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Season:
    """A season of a league, stored as a tournament; times are UTC.

    ``ended`` is True if the operator ended the season early.
    """

    tournament: int
    number: int
    starts: datetime
    ends: datetime
    ended: bool = False

    @classmethod
    def from_row(cls, row: Tournament) -> Season:
        """Read a season from a row with settings from `setup`."""
        starts, ends = (datetime.fromisoformat(row.setup[name]) for name in ("starts", "ends"))
        return cls(row.id, row.setup["season"], starts, ends, row.setup.get("ended", False))

    def setup(self, league: str) -> dict[str, object]:
        """Return the season as JSON for `Tournament.setup`."""
        return {
            "league": league,
            "season": self.number,
            "starts": self.starts.isoformat(timespec="seconds"),
            "ends": self.ends.isoformat(timespec="seconds"),
        } | ({"ended": True} if self.ended else {})


def seasons(session: Session, league: str) -> list[Season]:
    """Return all seasons of a league, the latest first."""
    rows = session.scalars(select(Tournament).order_by(Tournament.id.desc()))
    return [Season.from_row(row) for row in rows if row.setup.get("league") == league]


def end_season(session: Session, league: str, now: datetime) -> None:
    """End the current season now; the league then starts the next season."""
    season = seasons(session, league)[0]
    row = session.get_one(Tournament, season.tournament)
    row.setup = replace(season, ends=min(season.ends, now), ended=True).setup(league)
    session.commit()


def league_row(session: Session, league: str, snake: str) -> LeagueSnake:
    """Return the row of a snake; create a missing row."""
    row = session.scalar(
        select(LeagueSnake).where(LeagueSnake.league == league, LeagueSnake.snake == snake)
    )
    if row is None:
        row = LeagueSnake(league=league, snake=snake, benched=False, failures=0, reason="")
        session.add(row)
    return row


def set_benched(session: Session, league: str, snake: str, benched: bool) -> None:
    """Bench or unbench a snake.

    An unbenched snake plays as soon as a health check passes.
    """
    row = league_row(session, league, snake)
    row.benched = benched
    if not benched:
        row.cooldown_until = _ENDED_COOLDOWN
    session.commit()


def league_rows(session: Session, league: str) -> dict[str, LeagueSnake]:
    """Return the stored state of the league's snakes, by name."""
    rows = session.scalars(select(LeagueSnake).where(LeagueSnake.league == league))
    return {row.snake: row for row in rows}


@dataclass(frozen=True, slots=True)
class _Playing:
    """A game in progress: the settings, the snakes and the season's tournament."""

    setup: TournamentSettings
    names: tuple[str, ...]
    tournament: int


class League:
    """Plays a league; a snake plays in at most one game at a time.

    Args:
        plan: The league's configuration.
        sources: Source of every entrant by name, as in `tournament.Entrant`.
        engine: The database.
        health: Checks snakes.
        jobs: Number of games in parallel.
        replays: Directory for replays.
        address_policy: Addresses that the operator allows.
        clock: The clock to use (default: a `SteadyClock`).
    """

    def __init__(
        self,
        plan: LeagueConfig,
        sources: Mapping[str, str],
        engine: Engine,
        health: HealthCheck,
        *,
        jobs: int = 1,
        replays: Path | None = None,
        address_policy: AddressPolicy = AddressPolicy(),  # noqa: B008
        clock: Clock | None = None,
    ) -> None:
        self.plan = plan
        self.games = 0
        self._sources = sources
        self._engine = engine
        self._health = health
        self._jobs = jobs
        self._replays = replays
        self._address_policy = address_policy
        self._clock = clock or SteadyClock()
        self._checked: dict[str, datetime] = {}
        self._playing: dict[Future[GameResult], _Playing] = {}
        self._next_game = self._clock.now()
        self._season: Season
        self._restore_season(self._find_season())
        with_retries(self._engine, self._limit_cooldowns)

    @property
    def season(self) -> Season:
        """The current season."""
        return self._season

    def run(self, play: Play, games: int | None = None) -> None:
        """Run the league until ``games`` games have been played, or forever."""
        while games is None or self.games < games:
            self.step(play, None if games is None else games - self.games)

    def step(self, play: Play, max_games: int | None = None) -> None:
        """Do all pending work, then wait until more work may be pending."""
        for future in [future for future in self._playing if future.done()]:
            self._finish(future)
        self._update_season()
        now = self._clock.now()
        rows = self._league_rows()
        if self._check_health(rows, now):
            rows = self._league_rows()
        healthy = [name for name in self._sources if self._is_healthy(rows.get(name))]
        while now >= self._next_game and len(self._playing) < min(
            self._jobs, max_games or self._jobs
        ):
            if not self._start_game(healthy, play):
                break
            interval = timedelta(hours=1) / self.plan.games_per_hour
            self._next_game = max(self._next_game, now - interval) + interval
        self._clock.wait(self._seconds_until_due(rows, now), self._playing.keys())

    def _find_season(self) -> Season:
        found = with_retries(self._engine, lambda session: seasons(session, self.plan.name)[:1])
        if found:
            return found[0]
        now = self._clock.now().replace(microsecond=0)
        return self._add_season(1, now)

    def _add_season(self, number: int, starts: datetime) -> Season:
        season = Season(0, number, starts, starts + timedelta(days=self.plan.season_days))

        def add(session: Session) -> Season:
            row = Tournament(setup=season.setup(self.plan.name))
            session.add(row)
            session.commit()
            return Season.from_row(row)

        return with_retries(self._engine, add)

    def _update_season(self) -> None:
        """Start the next season after the current one, aligned to whole season lengths."""
        found = self._find_season()
        now = self._clock.now()
        if found.ended or now >= found.ends:
            length = timedelta(days=self.plan.season_days)
            missed = max(0, (now - found.ends) // length)
            found = self._add_season(found.number + 1, found.ends + missed * length)
            log(f"season {found.number} starts and ends at {found.ends:%Y-%m-%d %H:%M} UTC")
        if found.tournament != self._season.tournament:
            self._restore_season(found)
        self._season = found

    def _restore_season(self, season: Season) -> None:
        """Restore the state of a season from its games."""
        self._season = season
        self._ratings = Ratings()
        self._played: Counter[str] = Counter()
        self._recent_opponents: dict[str, deque[str]] = {
            name: deque(maxlen=PAIRING_MEMORY_GAMES) for name in self._sources
        }
        query = (
            select(StoredGame.id, StoredGame.number, Seat.snake, Seat.cause, Seat.eliminated_on)
            .join(Seat)
            .where(StoredGame.tournament_id == season.tournament)
            .order_by(StoredGame.id, Seat.seat)
        )  # fmt: skip
        games: dict[int, list[tuple[str, bool, int]]] = {}
        self._number = 0
        rows = with_retries(self._engine, lambda session: session.execute(query).all())
        for game, number, snake, cause, turn in rows:
            games.setdefault(game, []).append((snake, not cause, turn))
            self._number = max(self._number, number + 1)
        for seats in games.values():
            self._count_game(seats)

    def _count_game(self, seats: Sequence[tuple[str, bool, int]]) -> None:
        """Count a game, given as (name, alive, turn of elimination) of every seat."""
        self._ratings.add(rank(seats))
        names = [name for name, _, _ in seats]
        self._played.update(names)
        for name in names:
            if name in self._recent_opponents:
                self._recent_opponents[name].extend(other for other in names if other != name)

    def _league_rows(self) -> dict[str, LeagueSnake]:
        return with_retries(self._engine, lambda session: league_rows(session, self.plan.name))

    def _is_healthy(self, row: LeagueSnake | None) -> bool:
        return row is None or (not row.benched and row.cooldown_until is None)

    def _next_check(self, name: str, row: LeagueSnake | None) -> datetime | None:
        """Return the time of a snake's next health check; None for a benched snake."""
        if row is not None and row.benched:
            return None
        if row is not None and row.cooldown_until is not None:
            return row.cooldown_until
        every = timedelta(minutes=self.plan.health_check_minutes)
        return self._checked[name] + every if name in self._checked else datetime.min

    def _check_health(self, rows: Mapping[str, LeagueSnake], now: datetime) -> bool:
        """Check all snakes whose health check is due; return whether any check was due."""
        busy = {name for game in self._playing.values() for name in game.names}
        names = [
            name
            for name in self._sources
            if name not in busy
            and (due := self._next_check(name, rows.get(name))) is not None
            and due <= now
        ]
        for name, problem in zip(names, self._health(names) if names else (), strict=True):
            self._checked[name] = now
            if problem:
                self._start_cooldown(name, problem)
            elif (row := rows.get(name)) is not None and row.cooldown_until is not None:
                self._mark_healthy(name)
        return bool(names)

    def _start_cooldown(self, name: str, reason: str) -> None:
        now = self._clock.now()

        def write(session: Session) -> timedelta:
            row = league_row(session, self.plan.name, name)
            cooldown = _cooldown(row.failures)
            row.failures += 1
            row.cooldown_until, row.reason = now + cooldown, reason[:200]
            session.commit()
            return cooldown

        cooldown = with_retries(self._engine, write)
        log(f"{name} is unhealthy; cooldown of {cooldown.total_seconds() / 60:.0f} min: {reason}")

    def _limit_cooldowns(self, session: Session) -> None:
        """Shorten cooldowns whose end is later than a full cooldown from now."""
        now = self._clock.now()
        for row in league_rows(session, self.plan.name).values():
            if row.cooldown_until is not None:
                latest = now + _cooldown(max(0, row.failures - 1))
                row.cooldown_until = min(row.cooldown_until, latest)
        session.commit()

    def _mark_healthy(self, name: str) -> None:
        def write(session: Session) -> None:
            row = league_row(session, self.plan.name, name)
            row.cooldown_until, row.reason = None, ""
            session.commit()

        with_retries(self._engine, write)
        log(f"{name} is healthy again")

    def _reset_cooldown(self, name: str) -> None:
        """Reset the cooldown after a game without problems."""

        def write(session: Session) -> None:
            row = league_row(session, self.plan.name, name)
            if row.failures:
                row.failures = 0
                session.commit()

        with_retries(self._engine, write)

    def _start_game(self, healthy: Sequence[str], play: Play) -> bool:
        """Start the next game if enough snakes are free.

        Returns:
            Whether a game was started.
        """
        busy = {name for game in self._playing.values() for name in game.names}
        free = [name for name in healthy if name not in busy]
        turn = self._number % len(self.plan.boards)
        rotation = [*self.plan.boards[turn:], *self.plan.boards[:turn]]
        # Skip boards with too few healthy snakes. If the snakes are only busy, wait for free
        # snakes.
        board = next((board for board in rotation if board.num_snakes <= len(healthy)), None)
        if board is None or board.num_snakes > len(free):
            return False
        seed = start_seed(self.plan.seed + self._season.number, self._number)
        names = pair_entrants(
            free, board.num_snakes, self._ratings, self._played, self._recent_opponents
        )
        random.Random(seed).shuffle(names)
        setup = self.plan.setup(board, names, self._sources, address_policy=self._address_policy)
        scheduled = ScheduledGame(self._number, seed, tuple(range(len(names))))
        self._number += 1
        game = _Playing(setup, tuple(names), self._season.tournament)
        self._playing[play(setup, scheduled, self._replays)] = game
        return True

    def _finish(self, future: Future[GameResult]) -> None:
        """Store the result of a game.

        Cooldowns start for the snakes that failed in the game.
        """
        game = self._playing.pop(future)
        try:
            result = future.result()
        except OSError:  # No snake caused this error.
            raise
        except BrokenProcessPool:  # No snake caused this error either.
            log("a game's process was killed; the league continues with other games")
            return
        except Exception as error:
            log(f"a game of {', '.join(game.names)} failed: {error}")
            for name in game.names:
                self._checked.pop(name, None)
            return
        store(self._engine, result, game.tournament, game.setup)
        self.games += 1
        if game.tournament == self._season.tournament:
            self._count_game(
                [
                    (name, not seat.cause, seat.eliminated_on)
                    for name, seat in zip(game.names, result.seats, strict=True)
                ]
            )
        for name, seat in zip(game.names, result.seats, strict=True):
            failed, requested = sum(seat.problems.values()), len(seat.latencies)
            if 2 * failed >= requested and failed:
                kinds = ", ".join(seat.problems)
                kinds += f": {seat.error}" if seat.error else ""
                self._start_cooldown(
                    name, f"failed {failed} of {requested} moves of a game ({kinds})"
                )
            else:
                self._reset_cooldown(name)

    def _seconds_until_due(self, rows: Mapping[str, LeagueSnake], now: datetime) -> float:
        """Return the seconds until work is due, unless a game ends earlier."""
        times = [self._season.ends, self._next_game]
        times += [due for name in self._sources if (due := self._next_check(name, rows.get(name)))]
        upcoming = [moment for moment in times if moment > now]
        return (
            min(upcoming, default=now + timedelta(seconds=_LEAGUE_POLL_INTERVAL_S)) - now
        ).total_seconds()


def _cooldown(failures: int) -> timedelta:
    """Return the length of a cooldown after ``failures`` consecutive failures."""
    cooldown: timedelta = min(_MIN_COOLDOWN * 2 ** min(failures, 20), _MAX_COOLDOWN)
    return cooldown


def _system_time() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _monotonic_s() -> float:
    """Return monotonic seconds.

    On Linux, the time in which the system is suspended is included.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def pair_entrants(
    free: Sequence[str],
    count: int,
    ratings: Ratings,
    played: Mapping[str, int],
    recent_opponents: Mapping[str, Sequence[str]],
) -> list[str]:
    """Choose the snakes of the next game by number of games and rating.

    The snake with the fewest games plays against the snakes with the nearest ratings. Each of its
    latest games with another snake adds `_REMATCH_PENALTY` to the distance between the two snakes.
    This keeps closely rated snakes from meeting only each other.
    """
    first = min(free, key=lambda name: played.get(name, 0))

    def distance(other: str) -> float:
        rating_distance = abs(ratings.of(other).mu - ratings.of(first).mu)
        return rating_distance + _REMATCH_PENALTY * recent_opponents[first].count(other)

    return [first, *sorted((name for name in free if name != first), key=distance)[: count - 1]]


def log(text: str) -> None:
    """Write a line with the current time to the league's log."""
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")
    sys.stderr.flush()
