"""A standing league: pairing, health checks with cooldowns, and seasons.

The database contains the complete state of a league: seasons (`database.Tournament`), games
(`database.StoredGame`) and snakes (`LeagueSnake`). A restarted league resumes from the database.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from battlesnake_heuristics.rating.match import derive_seed
from battlesnake_server.arena.database import (
    Database,
    LeagueSnake,
    Seat,
    StoredGame,
    Tournament,
    utc_now,
)
from battlesnake_server.arena.league_snakes import LeagueSnakes
from battlesnake_server.arena.ratings import Ratings, rank_snakes
from battlesnake_server.arena.stored_tournament import StoredTournament
from battlesnake_server.arena.tournament import GameResult, ScheduledGame, TournamentSettings

_MIN_CLOCK_CHANGE_S = 60.0
"""Minimum change of the system clock that the league logs, in seconds.

Smaller changes are normal clock corrections.
"""

_LEAGUE_POLL_INTERVAL_S = 2.0
"""Maximum interval between two iterations of the league, in seconds.

Each iteration reads the clock and the operator's changes.
"""

_MIN_COOLDOWN, _MAX_COOLDOWN = timedelta(minutes=1), timedelta(hours=1)
"""Minimum and maximum cooldown of an unhealthy snake.

Each consecutive cooldown is twice as long as the previous cooldown.
"""

NUM_RECENT_OPPONENTS = 10
"""Number of a snake's latest opponents that reduce rematches.

The snake is less likely to be paired with these opponents again.
"""

_REMATCH_PENALTY = 5.0
"""Rating distance that each recent game between two snakes adds."""

StartGame = Callable[[TournamentSettings, ScheduledGame, Path | None], Future[GameResult]]
"""Function that starts a game and returns a future of the result."""


class _SteadyClock:
    """Clock that starts at the system time and advances with a monotonic clock.

    A change of the system clock neither stops games nor ends the season. The clock logs such
    changes.
    """

    def __init__(self) -> None:
        self._began = utc_now()
        self._began_s = _monotonic_s()
        self._logged_change_s = 0.0

    def now(self) -> datetime:
        """Return the current time (UTC, without a time zone)."""
        now = self._began + timedelta(seconds=_monotonic_s() - self._began_s)
        change_s = (utc_now() - now).total_seconds()
        if abs(change_s - self._logged_change_s) >= _MIN_CLOCK_CHANGE_S:
            self._logged_change_s = change_s
            log(
                f"the system clock differs by {change_s:+.0f} s from the elapsed time; game rate, "
                "cooldowns and seasons follow the elapsed time until the league is restarted"
            )
        return now

    def wait(self, seconds: float, games: Collection[Future[GameResult]]) -> None:
        """Wait until one of ``games`` ends.

        The method waits at most ``seconds`` and at most `_LEAGUE_POLL_INTERVAL_S` seconds.
        """
        seconds = min(seconds, _LEAGUE_POLL_INTERVAL_S)
        if games:
            wait(games, seconds, FIRST_COMPLETED)
        else:
            time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Season:
    """Season of a league, stored as a `database.Tournament`.

    ``starts`` and ``ends`` are in UTC. ``ended`` is True if the operator ended the season early.
    """

    tournament: int
    number: int
    starts: datetime
    ends: datetime
    ended: bool = False

    @classmethod
    def from_row(cls, row: Tournament) -> Season:
        """Build the season from the row of its tournament."""
        starts, ends = (datetime.fromisoformat(row.settings[name]) for name in ("starts", "ends"))
        return cls(row.id, row.settings["season"], starts, ends, row.settings.get("ended", False))

    @classmethod
    def load_all(cls, session: Session, league: str) -> list[Season]:
        """Return all seasons of a league, the latest first."""
        rows = session.scalars(select(Tournament).order_by(Tournament.id.desc()))
        found = []
        for row in rows:
            if row.settings and row.settings.get("league") == league:
                with contextlib.suppress(KeyError, TypeError, ValueError):  # Skip a damaged row.
                    found.append(cls.from_row(row))
        return found

    def end(self, session: Session, league: str, now: datetime) -> None:
        """End the season at the time ``now``, after which the league starts the next season.

        The caller commits.
        """
        row = session.get_one(Tournament, self.tournament)
        ended = replace(self, ends=min(self.ends, now), ended=True)
        row.settings = ended.tournament_settings(league)

    def tournament_settings(self, league: str) -> dict[str, object]:
        """Return the season as a dict for `Tournament.settings`."""
        return {
            "league": league,
            "season": self.number,
            "starts": self.starts.isoformat(timespec="seconds"),
            "ends": self.ends.isoformat(timespec="seconds"),
        } | ({"ended": True} if self.ended else {})


class League:
    """Runner of a league.

    A snake plays in at most one game at a time.

    Args:
        players: The league's snakes and its configuration.
        database: The results database.
        jobs: Maximum number of games in parallel.
        replays: Directory for replays; None disables replays.
        clock: Clock of the league; None creates a `_SteadyClock`.

    Attributes:
        season: Current season.
    """

    def __init__(
        self,
        players: LeagueSnakes,
        database: Database,
        *,
        jobs: int = 1,
        replays: Path | None = None,
        clock: _SteadyClock | None = None,
    ) -> None:
        self.plan = players.plan
        self.games = 0
        self._players = players
        self._database = database
        self._jobs = jobs
        self._replays = replays
        self._clock = clock or _SteadyClock()
        self._checked: dict[str, datetime] = {}
        # The settings of the games in progress, and the database ids of their seasons.
        self._playing: dict[Future[GameResult], tuple[TournamentSettings, int]] = {}
        self._next_game = self._clock.now()
        self.season = self._load_or_create_season()
        self._restore_season()
        self._database.transact(self._limit_cooldowns)

    def run(self, play: StartGame, games: int | None = None) -> None:
        """Run the league until ``games`` games have been played.

        If ``games`` is None, the league runs until interrupted.
        """
        while games is None or self.games < games:
            self.run_once(play, None if games is None else games - self.games)

    def run_once(self, play: StartGame, max_games: int | None = None) -> None:
        """Run one iteration: store results, check health, start games, and wait."""
        for future in [future for future in self._playing if future.done()]:
            self._finish_game(future)
        self._update_season()
        now = self._clock.now()
        rows = self._load_league_snakes()
        if self._check_health(rows, now):
            rows = self._load_league_snakes()
        healthy = [name for name, row in rows.items() if row.state == "healthy"]
        while now >= self._next_game and len(self._playing) < min(
            self._jobs, max_games or self._jobs
        ):
            if not self._start_game(healthy, play):
                break
            interval = timedelta(hours=1) / self.plan.games_per_hour
            self._next_game = max(self._next_game, now - interval) + interval
        self._clock.wait(self._seconds_until_due(rows, now), self._playing.keys())

    def _load_or_create_season(self) -> Season:
        """Return the latest stored season, or create the first season."""
        found = self._database.transact(
            lambda session: Season.load_all(session, self.plan.name)[:1]
        )
        if found:
            return found[0]
        now = self._clock.now().replace(microsecond=0)
        return self._add_season(1, now)

    def _add_season(self, number: int, starts: datetime) -> Season:
        """Store a new season that starts at ``starts``."""
        season = Season(0, number, starts, starts + timedelta(days=self.plan.season_days))
        settings = season.tournament_settings(self.plan.name)
        (row,) = self._database.insert(lambda: [Tournament(settings=settings)])
        return Season.from_row(row)

    def _update_season(self) -> None:
        """Start a new season if the current season has ended.

        The new season starts a whole number of season lengths after the end of the old season. A
        season that starts more than its length in the future was stored with a wrong clock; the new
        season then starts now.
        """
        found = self._load_or_create_season()
        now = self._clock.now()
        length = timedelta(days=self.plan.season_days)
        if found.ended or now >= found.ends or now < found.starts - length:
            missed = max(0, (now - found.ends) // length)
            starts = min(found.ends + missed * length, now)
            found = self._add_season(found.number + 1, starts)
            log(f"season {found.number} starts; end: {found.ends:%Y-%m-%d %H:%M} UTC")
        is_new = found.tournament != self.season.tournament
        self.season = found
        if is_new:
            self._restore_season()

    def _restore_season(self) -> None:
        """Restore ratings, numbers of games and recent opponents from stored games."""
        self._ratings = Ratings()
        self._played: Counter[str] = Counter()
        self._recent_opponents: dict[str, deque[str]] = {
            name: deque(maxlen=NUM_RECENT_OPPONENTS) for name in self._players.sources
        }
        query = (
            select(StoredGame.id, StoredGame.number, Seat.snake, Seat.cause, Seat.eliminated_on)
            .join(Seat)
            .where(StoredGame.tournament_id == self.season.tournament)
            .order_by(StoredGame.id, Seat.seat)
        )  # fmt: skip
        games: dict[int, list[tuple[str, bool, int]]] = {}
        self._number = 0
        rows = self._database.transact(lambda session: session.execute(query).all())
        for game, number, snake, cause, turn in rows:
            games.setdefault(game, []).append((snake, not cause, turn))
            self._number = max(self._number, number + 1)
        for seats in games.values():
            self._record_game(seats)

    def _record_game(self, seats: Sequence[tuple[str, bool, int]]) -> None:
        """Update ratings and recent opponents with a game.

        ``seats`` contains (name, alive, turn of elimination) for every seat.
        """
        self._ratings.add_game(rank_snakes(seats))
        names = [name for name, _, _ in seats]
        self._played.update(names)
        for name in names:
            if name in self._recent_opponents:
                self._recent_opponents[name].extend(other for other in names if other != name)

    def _load_league_snakes(self) -> dict[str, LeagueSnake]:
        """Load the rows of the entrants, keyed by name."""
        return self._database.transact(
            lambda session: LeagueSnake.load_all(session, self.plan.name, self._players.sources)
        )

    def _next_health_check(self, row: LeagueSnake) -> datetime | None:
        """Return the time of a snake's next health check, or None for a benched snake."""
        if row.benched:
            return None
        if row.cooldown_until is not None:
            return row.cooldown_until
        every = timedelta(minutes=self.plan.health_check_minutes)
        return self._checked[row.snake] + every if row.snake in self._checked else datetime.min

    def _check_health(self, rows: Mapping[str, LeagueSnake], now: datetime) -> bool:
        """Run all due health checks, and return whether a check was due."""
        names = [
            name
            for name in self._free_snakes(rows)
            if (due := self._next_health_check(rows[name])) is not None and due <= now
        ]
        for name, problem in (self._players.find_problems(names) if names else {}).items():
            self._checked[name] = now
            if problem:
                self._start_cooldown(name, problem)
            elif rows[name].cooldown_until is not None:
                self._update_row(name, cooldown_until=None, reason="")
                log(f"{name} is healthy again")
        return bool(names)

    def _free_snakes(self, names: Iterable[str]) -> list[str]:
        """Return the snakes that are not playing."""
        busy = {name for settings, _ in self._playing.values() for name in settings.labels}
        return [name for name in names if name not in busy]

    def _start_cooldown(self, name: str, reason: str) -> None:
        """Store a cooldown for an unhealthy snake."""
        now = self._clock.now()

        def write(session: Session) -> timedelta:
            row = LeagueSnake.get_or_create(session, self.plan.name, name)
            cooldown = _cooldown_duration(row.failures)
            row.failures += 1
            row.cooldown_until, row.reason = now + cooldown, reason[:200]
            return cooldown

        cooldown = self._database.transact(write)
        log(f"{name} is unhealthy; cooldown of {cooldown.total_seconds() / 60:.0f} min: {reason}")

    def _limit_cooldowns(self, session: Session) -> None:
        """Limit the remaining time of each cooldown to one full cooldown."""
        now = self._clock.now()
        for row in LeagueSnake.load_all(session, self.plan.name, self._players.sources).values():
            if row.cooldown_until is not None:
                latest = now + _cooldown_duration(max(0, row.failures - 1))
                row.cooldown_until = min(row.cooldown_until, latest)

    def _update_row(self, name: str, **values: object) -> None:
        """Update columns of a snake's row if the row is stored."""
        statement = update(LeagueSnake).where(
            LeagueSnake.league == self.plan.name, LeagueSnake.snake == name
        )
        self._database.transact(lambda session: session.execute(statement.values(values)))

    def _start_game(self, healthy: Sequence[str], play: StartGame) -> bool:
        """Start the next game if enough snakes are free.

        Returns:
            Whether a game was started.
        """
        free = self._free_snakes(healthy)
        turn = self._number % len(self.plan.boards)
        rotation = [*self.plan.boards[turn:], *self.plan.boards[:turn]]
        # A board is skipped if too few snakes are healthy. If the healthy snakes are only busy, the
        # league waits for the end of their games.
        board = next((board for board in rotation if board.num_snakes <= len(healthy)), None)
        if board is None or board.num_snakes > len(free):
            return False
        seed = derive_seed(self.plan.seed + self.season.number, self._number)
        names = _pair_entrants(
            free, board.num_snakes, self._ratings, self._played, self._recent_opponents
        )
        random.Random(seed).shuffle(names)
        settings = self.plan.game_settings(
            board, names, self._players.sources, address_policy=self._players.address_policy
        )
        scheduled = ScheduledGame(self._number, seed, tuple(range(len(names))))
        self._number += 1
        game = play(settings, scheduled, self._replays)
        self._playing[game] = settings, self.season.tournament
        return True

    def _finish_game(self, future: Future[GameResult]) -> None:
        """Store the result of a game.

        A cooldown starts for each snake that failed on at least half of its moves.
        """
        settings, tournament = self._playing.pop(future)
        names = settings.labels
        try:
            result = future.result()
        except OSError:  # The machine caused this error, not a snake.
            raise
        except BrokenProcessPool:  # No snake is responsible for a killed process.
            log("a game's process was killed; the league continues with other games")
            return
        except Exception as error:
            log(f"a game of {', '.join(names)} failed: {error}")
            for name in names:
                self._checked.pop(name, None)
            return
        StoredTournament(self._database, tournament, settings).store([result])
        self.games += 1
        seats = list(zip(names, result.seats, strict=True))
        if tournament == self.season.tournament:
            self._record_game([(name, not seat.cause, seat.eliminated_on) for name, seat in seats])
        for name, seat in seats:
            failed, requested = sum(seat.problems.values()), len(seat.latencies)
            if 2 * failed >= requested and failed:
                kinds = ", ".join(seat.problems)
                kinds += f": {seat.error}" if seat.error else ""
                self._start_cooldown(
                    name, f"failed {failed} of {requested} moves of a game ({kinds})"
                )
            else:
                self._update_row(name, failures=0)

    def _seconds_until_due(self, rows: Mapping[str, LeagueSnake], now: datetime) -> float:
        """Return the seconds until a season end, a game start or a health check."""
        times = [self.season.ends, self._next_game]
        times += [due for row in rows.values() if (due := self._next_health_check(row))]
        upcoming = [moment for moment in times if moment > now]
        return (
            min(upcoming, default=now + timedelta(seconds=_LEAGUE_POLL_INTERVAL_S)) - now
        ).total_seconds()


def _cooldown_duration(failures: int) -> timedelta:
    """Return the duration of a cooldown after ``failures`` consecutive failures."""
    return min(_MIN_COOLDOWN * (1 << min(failures, 20)), _MAX_COOLDOWN)


def _monotonic_s() -> float:
    """Return the monotonic time in seconds.

    On Linux, the monotonic time includes the time in which the system is suspended.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _pair_entrants(
    free: Sequence[str],
    num_snakes: int,
    ratings: Ratings,
    played: Mapping[str, int],
    recent_opponents: Mapping[str, Sequence[str]],
) -> list[str]:
    """Choose the snakes of the next game by number of games and rating.

    The snake with the fewest games plays against the snakes with the nearest ratings. Each recent
    game between two snakes adds `_REMATCH_PENALTY` to their rating distance. The penalty prevents
    closely rated snakes from meeting only each other.
    """
    first = min(free, key=lambda name: played.get(name, 0))

    def distance(other: str) -> float:
        rating_distance = abs(ratings.get(other).mu - ratings.get(first).mu)
        return rating_distance + _REMATCH_PENALTY * recent_opponents[first].count(other)

    return [
        first,
        *sorted((name for name in free if name != first), key=distance)[: num_snakes - 1],
    ]


def log(text: str) -> None:
    """Write a line with the current time to the league's log."""
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")
    sys.stderr.flush()
