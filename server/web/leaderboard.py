"""The page ``/``: ratings with their intervals, wins, draws, and how the snakes died."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from flask import Blueprint, Response, jsonify, render_template, request
from sqlalchemy import func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, selectinload

from server.database import Game, Tournament
from server.results import ALIVE, Line, summarise, to_json
from server.web.context import arena, number
from server.web.hall import SETUP

blueprint = Blueprint("leaderboard", __name__)

ENDINGS = {
    ALIVE: "alive",
    "snake-collision": "ran into a body",
    "head-collision": "head to head",
    "wall-collision": "hit a wall",
    "snake-self-collision": "bit itself",
    "out-of-health": "starved",
    "hazard": "hazards",
}
"""How snakes end, in the order in which the bars show it."""


@dataclass(frozen=True, slots=True)
class Choice:
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
    """The number ``?tournament=`` of the current request; None for all, or where it is none."""
    if request.args.get("tournament", type=int) is None:
        return None
    return number("tournament", 0)


def tournaments() -> list[Choice]:
    """All that have games, the latest first."""
    with Session(arena().database) as session:
        rows = session.execute(
            select(Tournament, func.count(Game.id)).join(Game).group_by(Tournament.id)
            .order_by(Tournament.id.desc())
        )  # fmt: skip
        return [
            Choice(
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


def standings(tournament: int | None) -> Sequence[Line]:
    """The results of a tournament, or of all games (None), the best rated first."""
    database = arena().database
    with Session(database) as session:
        query = select(func.count(Game.id), func.max(Game.id))
        if tournament is not None:
            query = query.where(Game.tournament_id == tournament)
        games, latest = session.execute(query).one()
    return _standings(database, tournament, games, latest)


@functools.lru_cache(maxsize=16)
def _standings(
    database: Engine, tournament: int | None, games: int, latest: int | None
) -> Sequence[Line]:
    """``games`` and ``latest`` let it be worked out anew once there are more games."""
    query = select(Game).order_by(Game.id).options(selectinload(Game.seats))
    if tournament is not None:
        query = query.where(Game.tournament_id == tournament)
    with Session(database) as session:
        return tuple(summarise(list(session.scalars(query))))


def _span(lines: Sequence[Line]) -> tuple[float, float]:
    """The lowest and the highest rating that the intervals reach."""
    low = min((line.rating.low for line in lines), default=0.0)
    high = max((line.rating.high for line in lines), default=1.0)
    return low, max(high, low + 1)
