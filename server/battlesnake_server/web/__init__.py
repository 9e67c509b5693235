"""Pages of the arena: ratings, live and recorded games, and a position editor."""

from __future__ import annotations

from pathlib import Path

from flask import Flask
from sqlalchemy.engine import Engine

from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.web import (
    engine_api,
    games_page,
    leaderboard,
    league_page,
    play_page,
    position_editor,
    replay_pages,
    snake_page,
)
from battlesnake_server.web.context import Arena
from battlesnake_server.web.game_manager import GameManager
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.pages import create_application
from battlesnake_server.web.roster import Roster


def create_app(
    database: Engine,
    roster: Roster,
    broadcast: LiveGames,
    replays: Path,
    token: str | None = None,
    league: LeagueConfig | None = None,
) -> Flask:
    """Create the arena's Flask application.

    Args:
        database: SQLAlchemy engine of the results database.
        roster: Snakes that visitors may play against and query.
        broadcast: Live games, including the games that visitors start.
        replays: Directory of recorded games, including the games of visitors.
        token: Access token that every action requires; None allows every visitor to act.
        league: League to show on its own page, or None.
    """
    parts = [leaderboard, games_page, snake_page, play_page, position_editor, engine_api]
    if league is not None:
        parts.append(league_page)
    app = create_application("Arena", *(part.blueprint for part in parts), token=token)
    replay_pages.add_replay_pages(app, [replays])
    app.extensions["arena"] = Arena(
        database, roster, broadcast, GameManager(database, broadcast, replays), league
    )
    return app
