"""The arena's result database.

The default database is an SQLite file. A URL selects any other database that SQLAlchemy supports.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    TypeDecorator,
    UniqueConstraint,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
    selectinload,
)
from sqlalchemy.pool import NullPool, Pool

from battlesnake_gym.common.command_line import describe_error
from battlesnake_gym.common.file_locks import missing_message, read_owner, try_lock, write_owner
from battlesnake_gym.rules.state import MOVES
from battlesnake_server.arena.tournament import GameResult

_T = TypeVar("_T")

DEFAULT_DATABASE_URL = "sqlite:///arena.sqlite"


SNAKE_VERSIONS_KEY = "snake_versions"
"""Key of the snakes' versions in `Tournament.settings`.

The value lists the `snake_versions.snake_version` of every snake, in the order of ``snakes``.
"""


class _TolerantColumnType(TypeDecorator[Any]):
    """Column type, JSON by default, that returns None for a value that cannot be converted.

    Other programs may write any value into an SQLite database. One damaged row must not prevent
    reading the other rows.
    """

    impl: Any = JSON
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return the function that converts a value from the database."""
        convert = super().result_processor(dialect, coltype)

        def convert_or_none(value: object) -> Any:
            try:
                return value if convert is None else convert(value)
            except (ValueError, TypeError, AttributeError, RecursionError):
                return None

        return convert_or_none


class _TolerantDateTime(_TolerantColumnType):
    """Column type of times; None for a damaged time."""

    impl = DateTime
    cache_ok = True


class _Base(DeclarativeBase):
    """Declarative base class of the arena's database tables."""

    type_annotation_map = {  # noqa: RUF012
        dict[str, int]: _TolerantColumnType,
        list[float]: _TolerantColumnType,
        datetime: _TolerantDateTime,
    }


_RENAMED_SETTINGS = {
    "per_game": "num_snakes",
    "positions": "nodes",
    "milliseconds": "move_time_ms",
    "sides": "is_match",
}
"""Current names of the keys that version 0.1 wrote to `Tournament.settings`."""

_RENAMED_COLUMNS = {"rests_until": "cooldown_until", "why": "reason"}
"""Current names of the columns of `LeagueSnake` that version 0.1 created."""


class _SettingsColumnType(_TolerantColumnType):
    """Column type of tournament settings, stored as JSON.

    Reading a value renames the keys in `_RENAMED_SETTINGS`.
    """

    cache_ok = True

    def process_result_value(
        self, value: dict[str, Any] | None, dialect: Dialect
    ) -> dict[str, Any] | None:
        """Return the stored settings with current key names."""
        if not isinstance(value, dict):
            return None
        return {_RENAMED_SETTINGS.get(key, key): setting for key, setting in value.items()}


class Tournament(_Base):
    """Table row of a tournament, with the settings and the games.

    ``settings`` contains the fields of `tournament.TournamentSettings` and `SNAKE_VERSIONS_KEY`. To
    resume a tournament, the arena loads the latest row with equal settings.
    """

    __tablename__ = "tournaments"

    id: Mapped[int] = mapped_column(primary_key=True)
    created: Mapped[datetime] = mapped_column(default=lambda: utc_now())
    settings: Mapped[dict[str, Any]] = mapped_column("setup", _SettingsColumnType)
    games: Mapped[list[StoredGame]] = relationship(
        back_populates="tournament", order_by="StoredGame.number", cascade="all, delete-orphan"
    )

    @classmethod
    def find(
        cls, session: Session, settings: Mapping[str, Any], *, any_version: bool = False
    ) -> Tournament | None:
        """Return the latest tournament with the given settings, or None.

        Args:
            session: The database session.
            settings: The settings, including `SNAKE_VERSIONS_KEY`. Settings that an earlier release
                stored lack this key. They match if the other settings are equal.
            any_version: Whether to ignore the versions of the snakes.
        """
        unversioned = _remove_snake_versions(settings)
        for tournament in session.scalars(select(cls).order_by(cls.id.desc())):
            stored = tournament.settings or {}  # None if the settings are damaged.
            if stored in (settings, unversioned) or (
                any_version and _remove_snake_versions(stored) == unversioned
            ):
                return tournament
        return None


def _remove_snake_versions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without `SNAKE_VERSIONS_KEY`."""
    return {name: value for name, value in settings.items() if name != SNAKE_VERSIONS_KEY}


class StoredGame(_Base):
    """Table row of one game of a tournament.

    ``number`` is the index of the game in the tournament's schedule. ``uuid`` is the game id sent
    to the snakes. ``finished`` is False if the turn limit ended the game. ``replay`` is the path of
    the replay file, or None if no replay was saved. ``played`` is the time in UTC at which the game
    was stored.
    """

    __tablename__ = "games"
    __table_args__ = (UniqueConstraint("tournament_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tournament_id: Mapped[int] = mapped_column(ForeignKey("tournaments.id"))
    number: Mapped[int]
    uuid: Mapped[str] = mapped_column(index=True)
    seed: Mapped[int] = mapped_column(BigInteger)
    turns: Mapped[int]
    finished: Mapped[bool]
    replay: Mapped[str | None]
    played: Mapped[datetime] = mapped_column(default=lambda: utc_now(), index=True)
    tournament: Mapped[Tournament] = relationship(back_populates="games")
    seats: Mapped[list[Seat]] = relationship(
        back_populates="game", order_by="Seat.seat", cascade="all, delete-orphan"
    )

    @classmethod
    def from_result(cls, result: GameResult, tournament: int, labels: Sequence[str]) -> StoredGame:
        """Build the row of a game.

        ``labels`` are the labels of the tournament's snakes.
        """
        seats = [
            Seat(
                seat=seat,
                snake=labels[result.scheduled.seats[seat]],
                won=seat == result.winner,
                **{name: value for name, value in asdict(record).items() if name != "error"},
            )
            for seat, record in enumerate(result.seats)
        ]
        return cls(
            tournament_id=tournament,
            number=result.scheduled.number,
            uuid=result.uuid,
            seed=result.scheduled.seed,
            turns=result.turns,
            finished=result.finished,
            replay=result.replay,
            seats=seats,
        )

    @property
    def is_draw(self) -> bool:
        """Whether several snakes played and no snake won."""
        return len(self.seats) > 1 and not any(seat.won for seat in self.seats)

    def is_readable(self, *, with_latencies: bool = True) -> bool:
        """Return whether all values have valid types and ranges.

        Another program may have changed the row.

        Args:
            with_latencies: Whether to load and check the latencies.
        """
        return (
            isinstance(self.uuid, str)
            and isinstance(self.replay, str | None)
            and self.played is not None
            and _is_count(self.turns)
            and bool(self.seats)
            and all(seat.is_readable(len(self.seats), with_latencies) for seat in self.seats)
        )


class Seat(_Base):
    """Table row of one snake in one game.

    The fields match `referee.SeatRecord`. ``won`` is False for all snakes of a draw.
    """

    __tablename__ = "seats"
    __table_args__ = (UniqueConstraint("game_id", "seat"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    game_id: Mapped[int] = mapped_column(ForeignKey("games.id"))
    seat: Mapped[int]
    snake: Mapped[str] = mapped_column(index=True)
    won: Mapped[bool]
    cause: Mapped[str]
    killer: Mapped[int | None]
    eliminated_on: Mapped[int]
    length: Mapped[int]
    latencies: Mapped[list[float]]
    problems: Mapped[dict[str, int]]
    opening: Mapped[str] = mapped_column(default="")
    game: Mapped[StoredGame] = relationship(back_populates="seats")

    def is_readable(self, num_seats: int, with_latencies: bool) -> bool:
        """Return whether all values have valid types and ranges; see `StoredGame.is_readable`."""
        return (
            all(isinstance(text, str) for text in (self.snake, self.cause, self.opening))
            and set(self.opening) <= {move[0] for move in MOVES}
            and all(_is_count(value) for value in (self.seat, self.eliminated_on, self.length))
            and (self.killer is None or (_is_count(self.killer) and self.killer < num_seats))
            and isinstance(self.problems, dict)
            and all(map(_is_count, self.problems.values()))
            and (
                not with_latencies
                or (isinstance(self.latencies, list) and all(map(_is_duration, self.latencies)))
            )
        )


def _is_count(value: object) -> bool:
    """Return whether ``value`` is an integer in [0, 2**31)."""
    return isinstance(value, int) and 0 <= value < 1 << 31


def _is_duration(value: object) -> bool:
    """Return whether ``value`` is a number in [0, 2**31)."""
    return isinstance(value, int | float) and 0 <= value < 1 << 31


_EXPIRED_COOLDOWN_END = datetime(1970, 1, 1)
"""Cooldown end in the past, for snakes whose health check is due now."""


class LeagueSnake(_Base):
    """Table row with the state of a snake in a standing league.

    A snake without a row is healthy. ``benched`` is True while the operator excludes the snake from
    games. ``failures`` is the number of cooldowns since the snake's last successful game.
    ``cooldown_until`` is the time of the next health check in UTC, or None if the snake is not in a
    cooldown. ``reason`` describes the failure that started the cooldown.
    """

    __tablename__ = "league_snakes"
    __table_args__ = (UniqueConstraint("league", "snake"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    league: Mapped[str]
    snake: Mapped[str]
    benched: Mapped[bool] = mapped_column(default=False)
    cooldown_until: Mapped[datetime | None] = mapped_column(default=None)
    failures: Mapped[int] = mapped_column(default=0)
    reason: Mapped[str] = mapped_column(default="")

    @property
    def state(self) -> str:
        """State of the snake: ``healthy``, ``cooldown`` or ``benched``."""
        if self.benched:
            return "benched"
        return "healthy" if self.cooldown_until is None else "cooldown"

    @classmethod
    def load_all(
        cls, session: Session, league: str, names: Iterable[str]
    ) -> dict[str, LeagueSnake]:
        """Load the rows of snakes, keyed by name.

        The row of a snake without a stored row is new, and the snake is healthy.
        """
        names = list(names)
        stored = session.scalars(select(cls).where(cls.league == league, cls.snake.in_(names)))
        rows = {row.snake: row for row in stored}
        return {
            name: rows.get(name)
            or cls(league=league, snake=name, benched=False, failures=0, reason="")
            for name in names
        }

    @classmethod
    def get_or_create(cls, session: Session, league: str, snake: str) -> LeagueSnake:
        """Return the row of a snake, and create the row if it is missing."""
        row = cls.load_all(session, league, [snake])[snake]
        session.add(row)
        return row

    def set_benched(self, benched: bool) -> None:
        """Bench or unbench the snake.

        An unbenched snake plays again after its next successful health check. The caller commits.
        """
        self.benched = benched
        if not benched:
            self.cooldown_until = _EXPIRED_COOLDOWN_END


class Database:
    """Results database of an arena, with missing tables created.

    Args:
        url: SQLAlchemy database URL.

    Raises:
        ValueError: If the URL is invalid or the database cannot be reached.
    """

    def __init__(self, url: str = DEFAULT_DATABASE_URL) -> None:
        try:
            self._engine = create_engine(url, poolclass=_pool_class(url))
            if self._engine.dialect.name == "sqlite":
                event.listen(self._engine, "connect", _replace_undecodable_text)
            self.transact(_create_tables)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"database {url!r} needs the package {error.name!r}; install the package"
            ) from error
        except SQLAlchemyError as error:
            raise ValueError(
                f"database {url!r}: {describe_error(error)}; give a URL like "
                "sqlite:///DIR/arena.sqlite in a writable DIR, or postgresql+psycopg://user@host/name"
            ) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def session(self) -> Session:
        """Open a session, for example for reading."""
        return Session(self._engine)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock an SQLite database for the games of this process.

        The method waits until the lock is free. During the wait, the owner of the lock is printed
        to standard error. The lock does not affect web pages and other readers. Databases other
        than SQLite are not locked, because they support concurrent writers.
        """
        name = self._engine.url.database
        if self._engine.dialect.name != "sqlite" or not name or name == ":memory:":
            yield
            return
        with Path(f"{name}.lock").open("a+") as file:
            try:
                if not try_lock(file):
                    owner = read_owner(file) or "another process"
                    _print_status(
                        f"{name} is locked by {owner}; waiting until its games end (Ctrl+C cancels)"
                    )
                    try_lock(file, wait=True)
            except OSError as error:
                _print_status(missing_message(file, error))
            write_owner(file)
            yield

    def transact(self, work: Callable[[Session], _T]) -> _T:
        """Call ``work`` with a new session, commit, and return the result.

        If another program has locked the SQLite database, the method calls ``work`` again until the
        call succeeds. ``work`` must create its rows: a row of a failed attempt keeps its id.
        """
        reported = False
        while True:
            try:
                with Session(self._engine, expire_on_commit=False) as session:
                    result = work(session)
                    session.commit()
                    return result
            except OperationalError as error:
                # SQLite has waited several seconds for the lock before this error.
                if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if not reported:
                    _print_status(
                        f"{self._engine.url.database} is locked by another program; waiting for "
                        "the lock"
                    )
                reported = True

    def insert(self, build: Callable[[], list[_T]]) -> list[_T]:
        """Insert the rows that ``build`` creates, and return the rows."""

        def add_rows(session: Session) -> list[_T]:
            rows = build()
            session.add_all(rows)
            return rows

        return self.transact(add_rows)

    def load_games(self, tournament_id: int) -> list[StoredGame]:
        """Load all games of a tournament with their seats, in schedule order."""
        query = (
            select(StoredGame)
            .where(StoredGame.tournament_id == tournament_id)
            .order_by(StoredGame.number)
            .options(selectinload(StoredGame.seats))
        )
        return self.transact(lambda session: list(session.scalars(query)))


def _pool_class(url: str) -> type[Pool] | None:
    """Return the class of the connection pool, or None for SQLAlchemy's default.

    SQLite files do not use a pool, because opening a file needs only 0.1 ms.
    """
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, ":memory:")
    return NullPool if is_file else None


def _replace_undecodable_text(connection: sqlite3.Connection, record: object) -> None:
    """Configure a connection to replace text that is not valid UTF-8."""
    connection.text_factory = lambda data: data.decode("utf-8", "replace")


def _create_tables(session: Session) -> None:
    """Create missing tables and rename columns of version 0.1."""
    connection = session.connection()
    _Base.metadata.create_all(connection)
    columns = {column["name"] for column in inspect(connection).get_columns("league_snakes")}
    for old, new in _RENAMED_COLUMNS.items():
        if old in columns:
            session.execute(text(f"ALTER TABLE league_snakes RENAME COLUMN {old} TO {new}"))


def utc_now() -> datetime:
    """Return the current time in UTC, without a time zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def _print_status(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
