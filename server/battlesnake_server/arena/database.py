"""The arena's result database.

The default database is SQLite; a URL selects any database that SQLAlchemy supports.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Dialect,
    ForeignKey,
    TypeDecorator,
    UniqueConstraint,
    create_engine,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
    selectinload,
)
from sqlalchemy.pool import NullPool, Pool

from battlesnake_gym.common.file_locks import (
    missing_message,
    read_owner,
    try_lock,
    write_owner,
)

_T = TypeVar("_T")

DEFAULT_DATABASE_URL = "sqlite:///arena.sqlite"


SNAKE_VERSIONS = "snake_versions"
"""Key of `Tournament.setup` with the version of each snake, in seat order.

The versions are those of `snake_versions.snake_version`.
"""


class DatabaseError(ValueError):
    """Error raised if a database is unusable.

    The message contains the URL and the error of the database.
    """


class Base(DeclarativeBase):
    """Base class of the arena's tables."""

    type_annotation_map = {dict[str, Any]: JSON, dict[str, int]: JSON, list[float]: JSON}  # noqa: RUF012


_RENAMED_SETTINGS = {
    "per_game": "num_snakes",
    "positions": "nodes",
    "milliseconds": "move_time_ms",
    "sides": "is_match",
}
"""Old keys of `Tournament.setup`, written by version 0.1, and the current names."""

_RENAMED_COLUMNS = {"rests_until": "cooldown_until", "why": "reason"}
"""Old columns of `LeagueSnake`, written by version 0.1, and the current names."""


class _Settings(TypeDecorator[dict[str, Any]]):
    """Tournament settings as JSON; old keys are renamed when the settings are read."""

    impl = JSON
    cache_ok = True

    def process_result_value(
        self, value: dict[str, Any] | None, dialect: Dialect
    ) -> dict[str, Any] | None:
        """Return the settings with their current keys."""
        if value is None:
            return None
        return {_RENAMED_SETTINGS.get(key, key): setting for key, setting in value.items()}


class Tournament(Base):
    """A tournament's settings and its games.

    ``setup`` is `tournament.TournamentSettings` as JSON, with `SNAKE_VERSIONS`. To resume, the
    arena finds the latest tournament with equal settings.
    """

    __tablename__ = "tournaments"

    id: Mapped[int] = mapped_column(primary_key=True)
    created: Mapped[datetime] = mapped_column(default=lambda: _now())
    setup: Mapped[dict[str, Any]] = mapped_column(_Settings)
    games: Mapped[list[StoredGame]] = relationship(
        back_populates="tournament", order_by="StoredGame.number", cascade="all, delete-orphan"
    )


class StoredGame(Base):
    """One game of a tournament.

    ``number`` is the index of the game in the tournament's schedule. ``uuid`` is the game id sent
    to the snakes. ``finished`` is False if the turn limit ended the game. ``replay`` is the path of
    the replay, if a replay was saved. ``played`` is the time of storage (UTC).
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
    played: Mapped[datetime] = mapped_column(default=lambda: _now(), index=True)
    tournament: Mapped[Tournament] = relationship(back_populates="games")
    seats: Mapped[list[Seat]] = relationship(
        back_populates="game", order_by="Seat.seat", cascade="all, delete-orphan"
    )


class Seat(Base):
    """One snake in one game; see `referee.SeatRecord`.

    In a draw, ``won`` is False for all snakes.
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


class LeagueSnake(Base):
    """The state of a snake in a standing league; a snake without a row is healthy.

    ``benched`` is True while the operator excludes the snake from games. ``failures`` counts the
    consecutive failed health checks, ``cooldown_until`` (UTC) is the time of the next health check,
    and ``reason`` describes the last failure.
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


def open_database(url: str = DEFAULT_DATABASE_URL) -> Engine:
    """Connect to a database and create missing tables.

    Args:
        url: SQLAlchemy database URL.

    Raises:
        DatabaseError: If the URL is invalid or the database cannot be reached.
    """
    try:
        engine = create_engine(url, poolclass=_pool(url))
        with_retries(engine, _create_tables)
    except ModuleNotFoundError as error:
        raise DatabaseError(f"database {url!r} needs the package {error.name!r}") from error
    except (ArgumentError, NoSuchModuleError, SQLAlchemyError) as error:
        raise DatabaseError(
            f"database {url!r}: {error}; give a URL like {DEFAULT_DATABASE_URL} or "
            "postgresql+psycopg://user@host/name"
        ) from error
    return engine


def _pool(url: str) -> type[Pool] | None:
    """Disable pooling for SQLite files, because opening a file takes only 0.1 ms."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, ":memory:")
    return NullPool if is_file else None


def _create_tables(session: Session) -> None:
    """Create missing tables and rename old columns."""
    connection = session.connection()
    Base.metadata.create_all(connection)
    columns = {column["name"] for column in inspect(connection).get_columns("league_snakes")}
    for old, new in _RENAMED_COLUMNS.items():
        if old in columns:
            session.execute(text(f"ALTER TABLE league_snakes RENAME COLUMN {old} TO {new}"))
    session.commit()


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


@contextmanager
def lock_database(engine: Engine) -> Iterator[None]:
    """Lock an SQLite database for the games of this process.

    The function waits until the lock is free. During the wait, the owner of the lock is printed to
    standard error. The lock does not affect web pages and other readers. Databases other than
    SQLite are not locked, because they support concurrent writers.
    """
    name = engine.url.database
    if engine.dialect.name != "sqlite" or not name or name == ":memory:":
        yield
        return
    with Path(f"{name}.lock").open("a+") as file:
        try:
            if not try_lock(file):
                owner = read_owner(file) or "another process"
                _log(f"{name} is locked by {owner}; waiting until its games end (Ctrl+C cancels)")
                try_lock(file, wait=True)
        except OSError as error:
            _log(missing_message(file, error))
        write_owner(file)
        yield


def with_retries(engine: Engine, work: Callable[[Session], _T]) -> _T:
    """Call ``work`` with a new session and return the result of ``work``.

    While another program locks an SQLite database, ``work`` is called again until the call
    succeeds.
    """
    reported = False
    while True:
        try:
            with Session(engine, expire_on_commit=False) as session:
                return work(session)
        except OperationalError as error:
            # SQLite has already waited several seconds before this error.
            if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if not reported:
                _log(f"{engine.url.database} is locked by another program; waiting for it")
            reported = True


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def find_tournament(
    session: Session, setup: Mapping[str, Any], *, any_version: bool = False
) -> Tournament | None:
    """Return the latest tournament with these settings, or None.

    Args:
        session: The database session.
        setup: The settings. A tournament of an earlier release, without `SNAKE_VERSIONS`, matches
            if the other settings are equal.
        any_version: Whether to ignore `SNAKE_VERSIONS`.
    """
    unversioned = _without_versions(setup)
    for tournament in session.scalars(select(Tournament).order_by(Tournament.id.desc())):
        stored = tournament.setup
        if stored in (setup, unversioned) or (
            any_version and _without_versions(stored) == unversioned
        ):
            return tournament
    return None


def _without_versions(setup: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in setup.items() if name != SNAKE_VERSIONS}


def load_games(session: Session, tournament_id: int) -> list[StoredGame]:
    """Load all games of a tournament with their seats, in schedule order."""
    query = (
        select(StoredGame)
        .where(StoredGame.tournament_id == tournament_id)
        .order_by(StoredGame.number)
        .options(selectinload(StoredGame.seats))
    )
    return list(session.scalars(query))
