"""Where the arena keeps its results: SQLite by default, any database of SQLAlchemy by URL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, UniqueConstraint, create_engine, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
    selectinload,
)

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
    created: Mapped[datetime] = mapped_column(
        default=lambda: datetime.now(UTC).replace(tzinfo=None)
    )
    setup: Mapped[dict[str, Any]]
    games: Mapped[list[Game]] = relationship(
        back_populates="tournament", order_by="Game.number", cascade="all, delete-orphan"
    )


class Game(Base):
    """One game: ``number`` is its place in the tournament's schedule.

    ``uuid`` is the id that the snakes were told; ``finished`` is false where the limit on turns
    ended the game; ``replay`` is the path of its replay, where one was kept.
    """

    __tablename__ = "games"
    __table_args__ = (UniqueConstraint("tournament_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tournament_id: Mapped[int] = mapped_column(ForeignKey("tournaments.id"))
    number: Mapped[int]
    uuid: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    turns: Mapped[int]
    finished: Mapped[bool]
    replay: Mapped[str | None]
    tournament: Mapped[Tournament] = relationship(back_populates="games")
    seats: Mapped[list[Seat]] = relationship(
        back_populates="game", order_by="Seat.seat", cascade="all, delete-orphan"
    )


class Seat(Base):
    """One snake in one game; see `referee.SeatRecord`. ``won`` is false for everybody in a draw."""

    __tablename__ = "seats"
    __table_args__ = (UniqueConstraint("game_id", "seat"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    game_id: Mapped[int] = mapped_column(ForeignKey("games.id"))
    seat: Mapped[int]
    snake: Mapped[str]
    won: Mapped[bool]
    cause: Mapped[str]
    killer: Mapped[int | None]
    eliminated_on: Mapped[int]
    length: Mapped[int]
    latencies: Mapped[list[float]]
    problems: Mapped[dict[str, int]]
    game: Mapped[Game] = relationship(back_populates="seats")


def open_database(url: str = DEFAULT_URL) -> Engine:
    """Connect, and create the tables where they are missing.

    Raises `DatabaseError` where the URL is wrong or nobody answers.
    """
    try:
        engine = create_engine(url)
        Base.metadata.create_all(engine)
    except ModuleNotFoundError as error:
        raise DatabaseError(f"database {url!r} needs the package {error.name!r}") from error
    except (ArgumentError, NoSuchModuleError, SQLAlchemyError) as error:
        raise DatabaseError(
            f"database {url!r}: {error}; give a URL like {DEFAULT_URL} or "
            "postgresql+psycopg://user@host/name"
        ) from error
    return engine


def find_tournament(session: Session, setup: dict[str, Any]) -> Tournament | None:
    """The latest tournament of this set-up."""
    for tournament in session.scalars(select(Tournament).order_by(Tournament.id.desc())):
        if tournament.setup == setup:
            return tournament
    return None


def load_games(session: Session, tournament_id: int) -> list[Game]:
    """All games of a tournament with their seats, in the schedule's order."""
    query = (
        select(Game)
        .where(Game.tournament_id == tournament_id)
        .order_by(Game.number)
        .options(selectinload(Game.seats))
    )
    return list(session.scalars(query))
