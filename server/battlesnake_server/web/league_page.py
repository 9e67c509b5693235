"""Page ``/league``: table of the season, snake states and operator actions."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, render_template
from sqlalchemy.orm import Session

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_server.arena.database import LeagueSnake, utc_now
from battlesnake_server.arena.league import Season
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.results import StandingsRow
from battlesnake_server.web.game_manager import current_arena
from battlesnake_server.web.leaderboard import find_standings
from battlesnake_server.web.pages import error_response, parse_body

blueprint = Blueprint("league", __name__)


def _league_config() -> LeagueConfig:
    """Return the configuration of the arena's league."""
    config = current_arena().league
    assert config is not None  # Only arenas with a league register the blueprint.
    return config


@blueprint.get("/league")
def index() -> str:
    """Render the current season."""
    config = _league_config()
    with current_arena().database.session() as session:
        all_seasons = Season.load_all(session, config.name)
    season = all_seasons[0] if all_seasons else None
    return render_template(
        "arena_league.html",
        config=config,
        season=season,
        seasons=all_seasons,
        table=_build_table(season),
    )


@blueprint.get("/league.json")
def as_json() -> Response:
    """Return the table of the current season as JSON."""
    config = _league_config()
    with current_arena().database.session() as session:
        season = next(iter(Season.load_all(session, config.name)), None)
    return jsonify(
        league=config.name,
        season=season and season.number,
        ends=season and season.ends.isoformat(),
        snakes=[
            {
                "snake": row.snake,
                "state": row.state,
                "reason": row.reason if row.state == "cooldown" else "",
                "cooldown_until": (
                    row.cooldown_until.isoformat()
                    if row.cooldown_until and row.state == "cooldown"
                    else None
                ),
                "rating": None if line is None else line.rating.mu,
                "games": 0 if line is None else line.games,
                "wins": 0 if line is None else line.wins,
            }
            for row, line in _build_table(season)
        ],
    )


@blueprint.post("/league/bench")
def bench() -> Response:
    """Bench or unbench a snake."""
    config = _league_config()
    sent = parse_body()
    snake = json_fields.string(sent, "snake", "")
    benched = sent.get("benched")
    if not isinstance(benched, bool):
        raise BoardError(f"benched must be true or false, got {format_value(benched)}")
    if snake not in {entrant.name for entrant in config.entrants}:
        raise BoardError(f"snake: {format_value(snake)} is not in this league")
    current_arena().database.transact(
        lambda session: LeagueSnake.get_or_create(session, config.name, snake).set_benched(benched)
    )
    return jsonify(snake=snake, benched=benched)


@blueprint.post("/league/season")
def end_current_season() -> Response:
    """End the current season."""
    config = _league_config()
    parse_body()

    def end_latest(session: Session) -> bool:
        seasons = Season.load_all(session, config.name)[:1]
        for season in seasons:
            season.end(session, config.name, utc_now())
        return bool(seasons)

    if not current_arena().database.transact(end_latest):
        return error_response("no season has started", 409)
    return jsonify(ended=True)


def _build_table(season: Season | None) -> list[tuple[LeagueSnake, StandingsRow | None]]:
    """Return the states and the standings of all entrants by descending rating.

    Entrants without games are last.
    """
    config = _league_config()
    standings = [] if season is None else find_standings(season.tournament).sorted_rows()
    lines = {line.snake: line for line in standings}
    names = [entrant.name for entrant in config.entrants]
    ranks = {name: rank for rank, name in enumerate(lines)}
    names.sort(key=lambda name: ranks.get(name, len(ranks)))
    with current_arena().database.session() as session:
        rows = LeagueSnake.load_all(session, config.name, names)
    return [(row, lines.get(name)) for name, row in rows.items()]
