"""A league that never ends: who plays next, who rests, and when a season is over.

What must outlast the process is in the database (`database.Tournament` for a season,
`database.Game`, `LeagueSnake`), and is read again when it begins: a league that was killed goes on
where it was.
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

_LEAGUE_POLL_INTERVAL_S = 2.0
"""The longest wait before the league looks at the clock and at what the operator wants."""

_MIN_COOLDOWN, _MAX_COOLDOWN = timedelta(minutes=1), timedelta(hours=1)
"""Rests of a sick snake: each in a row is twice as long as the one before."""

PAIRING_MEMORY_GAMES = 10
"""The last games of a snake whose opponents it is kept apart from."""

_REMATCH_PENALTY = 5.0
"""What one of those games adds to the distance between two ratings."""

Play = Callable[[TournamentSettings, ScheduledGame, Path | None], Future[GameResult]]
"""Begins a game."""

HealthCheck = Callable[[Sequence[str]], Sequence[str]]
"""What is wrong with these snakes, "" for those that are well."""


class Clock(Protocol):
    """The time by which a league plays."""

    def now(self) -> datetime:
        """The time (UTC, naive)."""
        ...

    def wait(self, seconds: float, games: Collection[Future[GameResult]]) -> None:
        """Return after a while, as soon as one of ``games`` is over, or earlier."""
        ...


class WallClock:
    """The time of day."""

    def now(self) -> datetime:
        """The time (UTC, naive)."""
        return datetime.now(UTC).replace(tzinfo=None)

    def wait(self, seconds: float, games: Collection[Future[GameResult]]) -> None:
        """As `Clock.wait`; never longer than `LOOK_SECONDS`."""
        seconds = min(seconds, _LEAGUE_POLL_INTERVAL_S)
        if games:
            wait(games, seconds, FIRST_COMPLETED)
        else:
            time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Season:
    """A season of a league: a tournament of the database; times are UTC."""

    tournament: int
    number: int
    starts: datetime
    ends: datetime

    @classmethod
    def of(cls, row: Tournament) -> Season:
        """Read a row whose set-up `setup` wrote."""
        times = (datetime.fromisoformat(row.setup[name]) for name in ("starts", "ends"))
        return cls(row.id, row.setup["season"], *times)

    def setup(self, league: str) -> dict[str, object]:
        """Its name in the database."""
        return {
            "league": league,
            "season": self.number,
            "starts": self.starts.isoformat(timespec="seconds"),
            "ends": self.ends.isoformat(timespec="seconds"),
        }


def seasons(session: Session, league: str) -> list[Season]:
    """All seasons of a league, the latest first."""
    rows = session.scalars(select(Tournament).order_by(Tournament.id.desc()))
    return [Season.of(row) for row in rows if row.setup.get("league") == league]


def end_season(session: Session, league: str, now: datetime) -> None:
    """Let the season that is on end now; the league begins the next one."""
    season = seasons(session, league)[0]
    row = session.get_one(Tournament, season.tournament)
    row.setup = replace(season, ends=min(season.ends, now)).setup(league)
    session.commit()


def league_row(session: Session, league: str, snake: str) -> LeagueSnake:
    """The row of a snake, made where it is missing."""
    row = session.scalar(
        select(LeagueSnake).where(LeagueSnake.league == league, LeagueSnake.snake == snake)
    )
    if row is None:
        row = LeagueSnake(league=league, snake=snake, benched=False, failures=0, why="")
        session.add(row)
    return row


def set_benched(session: Session, league: str, snake: str, benched: bool, now: datetime) -> None:
    """Keep a snake from playing, or let it play as soon as it is found healthy."""
    row = league_row(session, league, snake)
    row.benched = benched
    if not benched:
        row.cooldown_until = now
    session.commit()


def league_rows(session: Session, league: str) -> dict[str, LeagueSnake]:
    """The stored state of the league's snakes, by name."""
    rows = session.scalars(select(LeagueSnake).where(LeagueSnake.league == league))
    return {row.snake: row for row in rows}


@dataclass(frozen=True, slots=True)
class _Playing:
    """A game that is on: the snakes of ``setup`` play it for a season."""

    setup: TournamentSettings
    names: tuple[str, ...]
    tournament: int


class League:
    """Plays a plan; ``sources`` has the source of every member, as in `tournament.Entrant`.

    ``jobs`` games are on at a time, and a snake is in one of them at most.
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
        reach: AddressPolicy = AddressPolicy(),  # noqa: B008
        clock: Clock | None = None,
    ) -> None:
        self.plan = plan
        self.games = 0
        self._sources = sources
        self._engine = engine
        self._health = health
        self._jobs = jobs
        self._replays = replays
        self._reach = reach
        self._clock = clock or WallClock()
        self._checked: dict[str, datetime] = {}
        self._playing: dict[Future[GameResult], _Playing] = {}
        self._next_game = self._clock.now()
        self._season: Season
        self._begin(self._find_season())

    @property
    def season(self) -> Season:
        """The season that is on."""
        return self._season

    def run(self, play: Play, games: int | None = None) -> None:
        """Play on without end, or until ``games`` games were played."""
        while games is None or self.games < games:
            self.step(play, None if games is None else games - self.games)

    def step(self, play: Play, most: int | None = None) -> None:
        """Do what is to be done now, then wait until there may be more."""
        for future in [future for future in self._playing if future.done()]:
            self._finish(future)
        self._turn_season()
        now = self._clock.now()
        noted = self._notes()
        if self._check_health(noted, now):
            noted = self._notes()
        fit = [name for name in self._sources if self._is_healthy(noted.get(name))]
        while now >= self._next_game and len(self._playing) < min(self._jobs, most or self._jobs):
            if not self._begin_game(fit, play):
                break
            pace = timedelta(hours=1) / self.plan.games_per_hour
            self._next_game = max(self._next_game, now - pace) + pace
        self._clock.wait(self._idle_seconds(noted, now), self._playing.keys())

    # --- seasons ----------------------------------------------------------------------------------

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
            return Season.of(row)

        return with_retries(self._engine, add)

    def _turn_season(self) -> None:
        """Begin the next season where this one is over; it begins when a season would have."""
        found = self._find_season()
        now = self._clock.now()
        if now >= found.ends:
            length = timedelta(days=self.plan.season_days)
            missed = (now - found.ends) // length
            found = self._add_season(found.number + 1, found.ends + missed * length)
            say(f"season {found.number} begins, until {found.ends:%Y-%m-%d %H:%M} UTC")
        if found.tournament != self._season.tournament:
            self._begin(found)
        self._season = found

    def _begin(self, season: Season) -> None:
        """Restore the state of a season from its games."""
        self._season = season
        self._ratings = Ratings()
        self._played: Counter[str] = Counter()
        self._met: dict[str, deque[str]] = {
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
            self._count(seats)

    def _count(self, seats: Sequence[tuple[str, bool, int]]) -> None:
        """Take a game into account: (name, alive, turn of elimination) of every seat."""
        self._ratings.add(rank(seats))
        names = [name for name, _, _ in seats]
        self._played.update(names)
        for name in names:
            if name in self._met:
                self._met[name].extend(other for other in names if other != name)

    # --- health -----------------------------------------------------------------------------------

    def _notes(self) -> dict[str, LeagueSnake]:
        return with_retries(self._engine, lambda session: league_rows(session, self.plan.name))

    def _is_healthy(self, noted: LeagueSnake | None) -> bool:
        return noted is None or (not noted.benched and noted.cooldown_until is None)

    def _due(self, name: str, noted: LeagueSnake | None) -> datetime | None:
        """When the health of a snake is looked at; None for one that the operator keeps out."""
        if noted is not None and noted.benched:
            return None
        if noted is not None and noted.cooldown_until is not None:
            return noted.cooldown_until
        every = timedelta(minutes=self.plan.health_minutes)
        return self._checked[name] + every if name in self._checked else datetime.min

    def _check_health(self, noted: Mapping[str, LeagueSnake], now: datetime) -> bool:
        """Look at the health of all snakes that are due; whether there were any."""
        busy = {name for game in self._playing.values() for name in game.names}
        names = [
            name
            for name in self._sources
            if name not in busy
            and (due := self._due(name, noted.get(name))) is not None
            and due <= now
        ]
        for name, ailment in zip(names, self._health(names) if names else (), strict=True):
            self._checked[name] = now
            if ailment:
                self._start_cooldown(name, ailment)
            elif (row := noted.get(name)) is not None and row.cooldown_until is not None:
                self._mark_healthy(name)
        return bool(names)

    def _start_cooldown(self, name: str, why: str) -> None:
        now = self._clock.now()

        def write(session: Session) -> timedelta:
            row = league_row(session, self.plan.name, name)
            rest: timedelta = min(_MIN_COOLDOWN * 2 ** min(row.failures, 20), _MAX_COOLDOWN)
            row.failures += 1
            row.cooldown_until, row.reason = now + rest, why[:200]
            session.commit()
            return rest

        rest = with_retries(self._engine, write)
        say(f"{name} rests for {rest.total_seconds() / 60:.0f} min: {why}")

    def _mark_healthy(self, name: str) -> None:
        def write(session: Session) -> None:
            row = league_row(session, self.plan.name, name)
            row.cooldown_until, row.reason = None, ""
            session.commit()

        with_retries(self._engine, write)
        say(f"{name} is back")

    def _reset_cooldown(self, name: str) -> None:
        """A game went well: the next rest is a short one again."""

        def write(session: Session) -> None:
            row = league_row(session, self.plan.name, name)
            if row.failures:
                row.failures = 0
                session.commit()

        with_retries(self._engine, write)

    # --- games ------------------------------------------------------------------------------------

    def _begin_game(self, fit: Sequence[str], play: Play) -> bool:
        """Begin the next game, if enough snakes are free for a board; whether it was begun."""
        busy = {name for game in self._playing.values() for name in game.names}
        free = [name for name in fit if name not in busy]
        turn = self._number % len(self.plan.boards)
        by_turns = [*self.plan.boards[turn:], *self.plan.boards[:turn]]
        # A board with too few healthy snakes is skipped; for one whose snakes play we wait.
        board = next((board for board in by_turns if board.num_snakes <= len(fit)), None)
        if board is None or board.num_snakes > len(free):
            return False
        seed = start_seed(self.plan.seed + self._season.number, self._number)
        names = pair_entrants(free, board.num_snakes, self._ratings, self._played, self._met)
        random.Random(seed).shuffle(names)
        setup = self.plan.setup(board, names, self._sources, reach=self._reach)
        fixture = ScheduledGame(self._number, seed, tuple(range(len(names))))
        self._number += 1
        game = _Playing(setup, tuple(names), self._season.tournament)
        self._playing[play(setup, fixture, self._replays)] = game
        return True

    def _finish(self, future: Future[GameResult]) -> None:
        """Store the result of a game, and look after the snakes that were sick in it."""
        game = self._playing.pop(future)
        try:
            result = future.result()
        except OSError:  # which no snake is to blame for
            raise
        except BrokenProcessPool:  # nor for this
            say("a game's process was killed; the league goes on with others")
            return
        except Exception as error:
            say(f"a game of {', '.join(game.names)} broke off: {error}")
            for name in game.names:
                self._checked.pop(name, None)
            return
        store(self._engine, result, game.tournament, game.setup)
        self.games += 1
        if game.tournament == self._season.tournament:
            self._count(
                [
                    (name, not seat.cause, seat.eliminated_on)
                    for name, seat in zip(game.names, result.seats, strict=True)
                ]
            )
        for name, seat in zip(game.names, result.seats, strict=True):
            lost, asked = sum(seat.problems.values()), len(seat.latencies)
            if 2 * lost >= asked and lost:
                kinds = ", ".join(seat.problems)
                self._start_cooldown(name, f"lost {lost} of {asked} moves of a game ({kinds})")
            else:
                self._reset_cooldown(name)

    def _idle_seconds(self, noted: Mapping[str, LeagueSnake], now: datetime) -> float:
        """How long there is nothing to do, unless a game ends."""
        times = [self._season.ends, self._next_game]
        times += [due for name in self._sources if (due := self._due(name, noted.get(name)))]
        coming = [moment for moment in times if moment > now]
        return (
            min(coming, default=now + timedelta(seconds=_LEAGUE_POLL_INTERVAL_S)) - now
        ).total_seconds()


def pair_entrants(
    free: Sequence[str],
    count: int,
    ratings: Ratings,
    played: Mapping[str, int],
    met: Mapping[str, Sequence[str]],
) -> list[str]:
    """The next game's snakes: the one with the fewest games, and those nearest to it in rating.

    Each of its last games that another was in too adds to their distance, so that two snakes of
    nearly the same rating do not play each other only.
    """
    first = min(free, key=lambda name: played.get(name, 0))

    def distance(other: str) -> float:
        apart = abs(ratings.of(other).mu - ratings.of(first).mu)
        return apart + _REMATCH_PENALTY * met[first].count(other)

    return [first, *sorted((name for name in free if name != first), key=distance)[: count - 1]]


def say(text: str) -> None:
    """A line of the league's log, with the time."""
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")
    sys.stderr.flush()
