"""The arena's pages: ratings, games played and recorded, and a board to ask about."""

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
from battlesnake_server.web.live_games import Broadcast
from battlesnake_server.web.pages import application
from battlesnake_server.web.roster import Roster


def create_app(
    database: Engine,
    roster: Roster,
    broadcast: Broadcast,
    replays: Path,
    token: str | None = None,
    league: LeagueConfig | None = None,
) -> Flask:
    """The application over a database of results.

    ``broadcast`` knows the games of a tournament that is running; those that people start are added
    to it, and kept in the folder ``replays``, of which all games are shown. With a ``token`` only
    those who have it may do more than look. With a ``league`` there is a page about it.
    """
    parts = [leaderboard, games_page, snake_page, play_page, position_editor, engine_api]
    if league is not None:
        parts.append(league_page)
    app = application("Arena", *(part.blueprint for part in parts), token=token)
    replay_pages.mount(app, [replays])
    app.extensions["arena"] = Arena(
        database, roster, broadcast, GameManager(database, broadcast, replays), league
    )
    return app
