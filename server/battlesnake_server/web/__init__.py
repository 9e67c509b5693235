"""The arena's pages: ratings, games played and recorded, and a board to ask about."""

from __future__ import annotations

from pathlib import Path

from flask import Flask
from sqlalchemy.engine import Engine

from battlesnake_server.arena.league_file import LeaguePlan
from battlesnake_server.web import (
    board_protocol,
    games_page,
    lab,
    leaderboard,
    league_page,
    play_page,
    snake_page,
    watch,
)
from battlesnake_server.web.board_matches import Hall
from battlesnake_server.web.context import Arena
from battlesnake_server.web.pages import application
from battlesnake_server.web.roster import Roster
from battlesnake_server.web.timeline import Broadcast


def create_app(
    database: Engine,
    roster: Roster,
    broadcast: Broadcast,
    replays: Path,
    token: str | None = None,
    league: LeaguePlan | None = None,
) -> Flask:
    """The application over a database of results.

    ``broadcast`` knows the games of a tournament that is running; those that people start are added
    to it, and kept in the folder ``replays``, of which all games are shown. With a ``token`` only
    those who have it may do more than look. With a ``league`` there is a page about it.
    """
    parts = [leaderboard, games_page, snake_page, play_page, lab, board_protocol]
    if league is not None:
        parts.append(league_page)
    app = application("Arena", *(part.blueprint for part in parts), token=token)
    watch.mount(app, [replays])
    app.extensions["arena"] = Arena(
        database, roster, broadcast, Hall(database, broadcast, replays), league
    )
    return app
