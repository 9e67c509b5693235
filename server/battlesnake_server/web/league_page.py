"""The page ``/league``: the season, its table, how every snake is, and what the operator may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from flask import Blueprint, Response, jsonify, render_template
from sqlalchemy.orm import Session

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_server.arena.database import LeagueSnake
from battlesnake_server.arena.league import Season, end_season, league_rows, seasons, set_benched
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.results import StandingsRow
from battlesnake_server.web.context import arena
from battlesnake_server.web.leaderboard import standings
from battlesnake_server.web.pages import body, error_response

blueprint = Blueprint("league", __name__)


@dataclass(frozen=True, slots=True)
class LeagueRow:
    """A snake of the league: its results in the season, if any, and how it is."""

    name: str
    line: StandingsRow | None
    state: str
    why: str
    benched: bool


def _plan() -> LeagueConfig:
    plan = arena().league
    assert plan is not None  # who registers the blueprint has one
    return plan


@blueprint.get("/league")
def index() -> str:
    """The season that is on."""
    plan = _plan()
    with Session(arena().database) as session:
        every = seasons(session, plan.name)
    season = every[0] if every else None
    return render_template(
        "arena_league.html", plan=plan, season=season, seasons=every, table=_table(season)
    )


@blueprint.get("/league.json")
def as_json() -> Response:
    """The same for scripts."""
    plan = _plan()
    with Session(arena().database) as session:
        every = seasons(session, plan.name)[:1]
    table = _table(every[0] if every else None)
    return jsonify(
        league=plan.name,
        season=every[0].number if every else None,
        ends=every[0].ends.isoformat() if every else None,
        snakes=[
            {
                "snake": one.name,
                "state": one.state,
                "why": one.why,
                "rating": None if one.line is None else one.line.rating.mu,
                "games": 0 if one.line is None else one.line.games,
                "wins": 0 if one.line is None else one.line.wins,
            }
            for one in table
        ],
    )


@blueprint.post("/league/bench")
def bench_one() -> Response:
    """Keep a snake from playing, or let it play again."""
    plan = _plan()
    try:
        asked = body()
        snake = json_fields.string(asked, "snake", "")
        benched = asked.get("benched")
        if not isinstance(benched, bool):
            raise BoardError(f"benched must be true or false, got {format_value(benched)}")
        if snake not in {entrant.name for entrant in plan.entrants}:
            raise BoardError(f"snake: {format_value(snake)} is not in this league")
    except BoardError as error:
        return error_response(error)
    with Session(arena().database) as session:
        set_benched(session, plan.name, snake, benched)
    return jsonify(snake=snake, benched=benched)


@blueprint.post("/league/season")
def next_season() -> Response:
    """End the season that is on."""
    plan = _plan()
    try:
        body()
    except BoardError as error:
        return error_response(error)
    with Session(arena().database) as session:
        if not seasons(session, plan.name):
            return error_response("no season has begun", 409)
        end_season(session, plan.name, _now())
    return jsonify(ended=True)


def _table(season: Season | None) -> list[LeagueRow]:
    """All snakes of the league's file, the best rated first, then those without a game."""
    plan = _plan()
    lines = {} if season is None else {line.snake: line for line in standings(season.tournament)}
    with Session(arena().database) as session:
        noted = league_rows(session, plan.name)
        names = [entrant.name for entrant in plan.entrants]
        places = {name: place for place, name in enumerate(lines)}
        names.sort(key=lambda name: places.get(name, len(places)))
        return [_standing(name, lines.get(name), noted.get(name)) for name in names]


def _standing(name: str, line: StandingsRow | None, row: LeagueSnake | None) -> LeagueRow:
    if row is None:
        return LeagueRow(name, line, "plays", "", False)
    if row.benched:
        return LeagueRow(name, line, "benched", "", True)
    if row.cooldown_until is None:
        return LeagueRow(name, line, "plays", "", False)
    return LeagueRow(name, line, f"rests until {row.cooldown_until:%H:%M} UTC", row.reason, False)


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
