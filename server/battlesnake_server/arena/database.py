"""Where the arena keeps its results: SQLite by default, any database of SQLAlchemy by URL."""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    UniqueConstraint,
    create_engine,
    make_url,
    select,
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

_T = TypeVar("_T")

DEFAULT_URL = "sqlite:///arena.sqlite"


class DatabaseError(ValueError):
    """The database cannot be used; says which URL, and what it answered."""


class Base(DeclarativeBase):
    """The tables of the arena."""

    type_annotation_map = {dict[str, Any]: JSON, dict[str, int]: JSON, list[float]: JSON}  # noqa: RUF012


class Tournament(Base):
    """A set-up, and the games that were played under it.

    ``setup`` is `tournament.Setup` as JSON; a tournament is resumed by an equal one.
    """

    __tablename__ = "tournaments"

    id: Mapped[int] = mapped_column(primary_key=True)
    created: Mapped[datetime] = mapped_column(default=lambda: _now())
    setup: Mapped[dict[str, Any]]
    games: Mapped[list[StoredGame]] = relationship(
        back_populates="tournament", order_by="StoredGame.number", cascade="all, delete-orphan"
    )


class StoredGame(Base):
    """One game: ``number`` is its place in the tournament's schedule.

    ``uuid`` is the game's id in requests to the snakes; ``finished`` is false where the limit on
    turns ended the game; ``replay`` is the path of its replay, where one was kept. ``played`` is
    when it was stored (UTC).
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
    """One snake in one game; see `referee.SeatRecord`. ``won`` is false for all in a draw."""

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
    """A snake's state in a standing league; one without a row is fit.

    ``benched`` says whether the operator keeps it from playing. ``cooldown_until`` (UTC) is when its
    health is looked at again after ``failures`` bad ones in a row, and ``why`` what was seen.
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


def open_database(url: str = DEFAULT_URL) -> Engine:
    """Connect, and create the tables where they are missing.

    Raises `DatabaseError` where the URL is wrong or no server answers.
    """
    try:
        engine = create_engine(url, poolclass=_pool(url))
        with_retries(engine, _create_tables)
    except ModuleNotFoundError as error:
        raise DatabaseError(f"database {url!r} needs the package {error.name!r}") from error
    except (ArgumentError, NoSuchModuleError, SQLAlchemyError) as error:
        raise DatabaseError(
            f"database {url!r}: {error}; give a URL like {DEFAULT_URL} or "
            "postgresql+psycopg://user@host/name"
        ) from error
    return engine


def _pool(url: str) -> type[Pool] | None:
    """A file is opened anew each time, in 0.1 ms, so no connection is left to close."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, ":memory:")
    return NullPool if is_file else None


def _create_tables(session: Session) -> None:
    Base.metadata.create_all(session.connection())
    session.commit()


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


@contextmanager
def lock_database(engine: Engine) -> Iterator[None]:
    """Keep an SQLite database's series of games for this process; another one waits until it ends.

    Standard error says which process it waits for. Pages and other readers are not kept out, nor
    are other databases, which are made for many.
    """
    name = engine.url.database
    if engine.dialect.name != "sqlite" or not name or name == ":memory:":
        yield
        return
    with Path(f"{name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            _say(f"{name} is held by {owner}; waiting until its games are over (Ctrl+C ends)")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n")
        file.flush()
        yield


def with_retries(engine: Engine, work: Callable[[Session], _T]) -> _T:
    """What ``work`` gives in a session of its own, which ends with it.

    While another program keeps an SQLite database locked it is begun anew, however long that takes.
    """
    reported = False
    while True:
        try:
            with Session(engine, expire_on_commit=False) as session:
                return work(session)
        except OperationalError as error:
            # SQLite itself has waited for some seconds before it said so.
            if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if not reported:
                _say(f"{engine.url.database} is locked by another program; waiting for it")
            reported = True


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def find_tournament(session: Session, setup: dict[str, Any]) -> Tournament | None:
    """The latest tournament of this set-up."""
    for tournament in session.scalars(select(Tournament).order_by(Tournament.id.desc())):
        if tournament.setup == setup:
            return tournament
    return None


def load_games(session: Session, tournament_id: int) -> list[StoredGame]:
    """All games of a tournament with their seats, in the schedule's order."""
    query = (
        select(StoredGame)
        .where(StoredGame.tournament_id == tournament_id)
        .order_by(StoredGame.number)
        .options(selectinload(StoredGame.seats))
    )
    return list(session.scalars(query))
