"""Page ``/``: ratings with confidence intervals, results and eliminations."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Response, jsonify, render_template, request
from sqlalchemy import Select, func, select
from sqlalchemy.orm import selectinload

from battlesnake_server.arena.database import Database, StoredGame, Tournament
from battlesnake_server.arena.results import SURVIVED_KEY, History, Standings, StandingsRow
from battlesnake_server.web.game_manager import VISITOR_TOURNAMENT, current_arena
from battlesnake_server.web.pages import query_integer

blueprint = Blueprint("leaderboard", __name__)

ENDING_LABELS = {
    SURVIVED_KEY: "alive",
    "snake-collision": "ran into a body",
    "head-collision": "lost head to head",
    "wall-collision": "hit a wall",
    "snake-self-collision": "ran into itself",
    "out-of-health": "starved",
    "hazard": "hazards",
}
"""Labels of the endings, in the order of the bars."""


@dataclass(frozen=True, slots=True)
class _TournamentOption:
    """Tournament that a visitor can select.

    Attributes:
        scheduled: False for the games that visitors started.
    """

    id: int
    title: str
    games: int
    when: str
    scheduled: bool


@blueprint.get("/")
def index() -> str:
    """Render the leaderboard of one tournament or of all games."""
    choices = list_tournaments()
    chosen = requested_tournament()
    if chosen is None and "tournament" not in request.args and choices:
        chosen = next((choice.id for choice in choices if choice.scheduled), choices[0].id)
    lines = find_standings(chosen).sorted_rows()
    return render_template(
        "arena_leaderboard.html",
        choices=choices,
        chosen=chosen,
        lines=lines,
        span=_rating_bounds(lines),
        endings=ENDING_LABELS,
        running=len(current_arena().broadcast.live_games()),
    )


@blueprint.get("/leaderboard.json")
def as_json() -> Response:
    """Return the leaderboard as JSON, with the number of live games for ``?live``."""
    lines = find_standings(requested_tournament()).sorted_rows()
    rows = [line.to_dict() for line in lines]
    live = len(current_arena().broadcast.live_games())
    return jsonify({"live": live, "snakes": rows} if "live" in request.args else rows)


def requested_tournament() -> int | None:
    """Return the tournament id in ``?tournament=`` of the current request.

    Returns:
        The id, or None (all games) if the parameter is absent or empty. An invalid parameter
        selects no tournament.
    """
    return query_integer("tournament", 0) if request.args.get("tournament") else None


def list_tournaments() -> list[_TournamentOption]:
    """Return all tournaments that have games, latest tournament first."""
    with current_arena().database.session() as session:
        rows = session.execute(
            select(Tournament, func.count(StoredGame.id)).join(StoredGame).group_by(Tournament.id)
            .order_by(Tournament.id.desc())
        )  # fmt: skip
        return [
            _TournamentOption(
                row.id,
                _title(row),
                games,
                f"{row.created:%Y-%m-%d %H:%M}" if row.created else "",
                row.settings != VISITOR_TOURNAMENT,
            )
            for row, games in rows
        ]


def _title(row: Tournament) -> str:
    """Return a short title of a tournament; the settings may be damaged."""
    setup = row.settings
    if setup == VISITOR_TOURNAMENT:
        return "Games from this site"
    try:
        if "league" in setup:
            return f"{setup['league']}, season {setup['season']}"
        snakes = setup["snakes"]
        names = ", ".join(str(name).rsplit("/", 1)[-1] for name in snakes[:4])
    except (KeyError, TypeError):
        return f"tournament {row.id}, whose settings are damaged"
    more = f" and {len(snakes) - 4} more" if len(snakes) > 4 else ""
    return f"{names}{more} · {setup.get('ruleset')} {setup.get('width')}x{setup.get('height')}"


def find_standings(tournament: int | None) -> _IncrementalStandings:
    """Return the standings of a tournament, or of all games if ``tournament`` is None."""
    return _cached_standings(current_arena().database, tournament)


@functools.lru_cache(maxsize=16)
def _cached_standings(database: Database, tournament: int | None) -> _IncrementalStandings:
    """Return the cached standings of a tournament or of all games."""
    return _IncrementalStandings(database, tournament)


_MAX_GAMES_PER_QUERY = 500
"""Maximum number of games that one database query loads."""


class _IncrementalStandings:
    """Standings of one tournament or of all games, updated with new games.

    Each method call loads the games stored since the last call. The tournament id None selects all
    games.
    """

    def __init__(self, database: Database, tournament: int | None) -> None:
        self._database = database
        self._conditions = () if tournament is None else (StoredGame.tournament_id == tournament,)
        self._lock = threading.Lock()
        self._standings = Standings()
        self._latest = self._damaged = 0
        self._lines: Sequence[StandingsRow] = ()

    def sorted_rows(self) -> Sequence[StandingsRow]:
        """Return the rows of all snakes in the games stored so far, best rating first."""
        with self._lock:
            self._load_new_games()
            return self._lines

    def find(self, snake: str) -> tuple[StandingsRow, History] | None:
        """Return the standings row and the history of a snake.

        The result is None if the snake has no games.
        """
        with self._lock:
            self._load_new_games()
            line = next((line for line in self._lines if line.snake == snake), None)
            if line is None:
                return None
            # Copy the history, because another thread may update the standings while the page is
            # rendered.
            return line, copy.deepcopy(self._standings.histories[snake])

    def _load_new_games(self) -> None:
        """Add the games stored since the last call to the standings."""
        with self._database.session() as session:
            known = self._standings.games + self._damaged
            stored = select(func.count(StoredGame.id)).where(
                StoredGame.id <= self._latest, *self._conditions
            )
            if session.scalar(stored) != known:
                # If games were deleted or inserted out of order, compute the standings from
                # scratch.
                self._standings, self._latest, self._damaged = Standings(), 0, 0
            before = self._standings.games
            while games := session.scalars(self._next_games_query()).all():
                for game in games:
                    if game.is_readable():
                        self._standings.add_game(game)
                    else:
                        self._damaged += 1
                self._latest = games[-1].id
                session.expunge_all()
        if before != self._standings.games or not before:
            self._lines = self._standings.sorted_rows()

    def _next_games_query(self) -> Select[Any]:
        """Build the query for the next games to load."""
        return (
            select(StoredGame)
            .where(StoredGame.id > self._latest, *self._conditions)
            .order_by(StoredGame.id)
            .limit(_MAX_GAMES_PER_QUERY)
            .options(selectinload(StoredGame.seats))
        )


def _rating_bounds(lines: Sequence[StandingsRow]) -> tuple[float, float]:
    """Return the lowest lower bound and the highest upper bound of the ratings."""
    low = min((line.rating.ci_low for line in lines), default=0.0)
    high = max((line.rating.ci_high for line in lines), default=1.0)
    return low, max(high, low + 1)
