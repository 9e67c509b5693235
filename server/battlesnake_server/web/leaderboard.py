"""The page ``/``: ratings with their intervals, wins, draws, and how the snakes died."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Response, jsonify, render_template, request
from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, selectinload

from battlesnake_server.arena.database import StoredGame, Tournament
from battlesnake_server.arena.results import SURVIVED, History, Standings, StandingsRow, to_json
from battlesnake_server.web.context import arena
from battlesnake_server.web.game_manager import SETUP
from battlesnake_server.web.pages import number

blueprint = Blueprint("leaderboard", __name__)

ENDINGS = {
    SURVIVED: "alive",
    "snake-collision": "ran into a body",
    "head-collision": "head to head",
    "wall-collision": "hit a wall",
    "snake-self-collision": "bit itself",
    "out-of-health": "starved",
    "hazard": "hazards",
}
"""How snakes end, in the order in which the bars show it."""


@dataclass(frozen=True, slots=True)
class TournamentOption:
    """A tournament that can be looked at; not ``scheduled`` are the games that people started."""

    id: int
    title: str
    games: int
    when: str
    scheduled: bool


@blueprint.get("/")
def index() -> str:
    """The table, of one tournament or of all games."""
    choices = tournaments()
    chosen = asked_tournament()
    if chosen is None and "tournament" not in request.args and choices:
        chosen = next((choice.id for choice in choices if choice.scheduled), choices[0].id)
    lines = standings(chosen)
    return render_template(
        "arena_leaderboard.html",
        choices=choices,
        chosen=chosen,
        lines=lines,
        span=_span(lines),
        endings=ENDINGS,
        running=len(arena().broadcast.running()),
    )


@blueprint.get("/leaderboard.json")
def as_json() -> Response:
    """The same for scripts."""
    return jsonify(to_json(standings(asked_tournament())))


def asked_tournament() -> int | None:
    """The number ``?tournament=`` of the current request; None for all, or if malformed."""
    if request.args.get("tournament", type=int) is None:
        return None
    return number("tournament", 0)


def tournaments() -> list[TournamentOption]:
    """All that have games, the latest first."""
    with Session(arena().database) as session:
        rows = session.execute(
            select(Tournament, func.count(StoredGame.id)).join(StoredGame).group_by(Tournament.id)
            .order_by(Tournament.id.desc())
        )  # fmt: skip
        return [
            TournamentOption(
                row.id,
                title(row.setup),
                games,
                row.created.strftime("%Y-%m-%d %H:%M"),
                row.setup != SETUP,
            )
            for row, games in rows
        ]


def title(setup: dict[str, object]) -> str:
    """A tournament in a few words."""
    if setup == SETUP:
        return "Games from these pages"
    if "league" in setup:
        return f"{setup['league']}, season {setup['season']}"
    snakes = setup["snakes"]
    assert isinstance(snakes, list)
    names = ", ".join(str(name).rsplit("/", 1)[-1] for name in snakes[:4])
    more = f" and {len(snakes) - 4} more" if len(snakes) > 4 else ""
    return f"{names}{more} · {setup.get('ruleset')} {setup.get('width')}x{setup.get('height')}"


def standings(tournament: int | None) -> Sequence[StandingsRow]:
    """The results of a tournament, or of all games (None), the best rated first."""
    return _kept(arena().database, tournament).lines()


def history(snake: str, tournament: int | None) -> tuple[StandingsRow, History] | None:
    """The results of one snake's games; None for one without games."""
    return _kept(arena().database, tournament).of(snake)


@functools.lru_cache(maxsize=16)
def _kept(database: Engine, tournament: int | None) -> IncrementalStandings:
    return IncrementalStandings(database, tournament)


_MAX_GAMES_PER_QUERY = 500
"""Games that are read from the database in one piece."""


class IncrementalStandings:
    """The standings of a tournament (None: of all games), for which new games alone are read."""

    def __init__(self, database: Engine, tournament: int | None) -> None:
        self._database = database
        self._tournament = tournament
        self._lock = threading.Lock()
        self._standings = Standings()
        self._latest = 0
        self._lines: Sequence[StandingsRow] = ()

    def lines(self) -> Sequence[StandingsRow]:
        """As `Standings.lines`, of the games that there are now."""
        with self._lock:
            self._grow()
            return self._lines

    def of(self, snake: str) -> tuple[StandingsRow, History] | None:
        """The results of one snake, and what they came from; None for one without games."""
        with self._lock:
            self._grow()
            line = next((line for line in self._lines if line.snake == snake), None)
            if line is None:
                return None
            # A copy: while a page is made of it, others let the standings grow.
            return line, copy.deepcopy(self._standings.histories[snake])

    def _grow(self) -> None:
        with Session(self._database) as session:
            if self._games(session, StoredGame.id <= self._latest) != self._standings.games:
                self._standings, self._latest = Standings(), 0  # some are gone, or came late
            before = self._standings.games
            while games := session.scalars(self._following()).all():
                for game in games:
                    self._standings.add(game)
                self._latest = games[-1].id
                session.expunge_all()
        if before != self._standings.games or not before:
            self._lines = self._standings.lines()

    def _games(self, session: Session, which: ColumnElement[bool]) -> int:
        query = select(func.count(StoredGame.id)).where(which)
        if self._tournament is not None:
            query = query.where(StoredGame.tournament_id == self._tournament)
        return session.scalar(query) or 0

    def _following(self) -> Select[Any]:
        query = (
            select(StoredGame)
            .where(StoredGame.id > self._latest)
            .order_by(StoredGame.id)
            .limit(_MAX_GAMES_PER_QUERY)
        )
        if self._tournament is not None:
            query = query.where(StoredGame.tournament_id == self._tournament)
        return query.options(selectinload(StoredGame.seats))


def _span(lines: Sequence[StandingsRow]) -> tuple[float, float]:
    """The lowest and the highest rating that the intervals reach."""
    low = min((line.rating.low for line in lines), default=0.0)
    high = max((line.rating.high for line in lines), default=1.0)
    return low, max(high, low + 1)
