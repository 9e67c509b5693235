"""The arena's pages: who is strongest, games played and recorded, and a board to ask about."""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response, request
from sqlalchemy.engine import Engine

from server.arena.league_file import Plan
from server.web import board_protocol as engine_protocol
from server.web import games, lab, leaderboard, play, snake, watch
from server.web import league as league_page
from server.web.context import Arena
from server.web.matches import Hall
from server.web.pages import application
from server.web.roster import Roster
from server.web.timeline import Broadcast


def create_app(
    database: Engine,
    roster: Roster,
    broadcast: Broadcast,
    replays: Path,
    token: str | None = None,
    league: Plan | None = None,
) -> Flask:
    """The application over a database of results.

    ``broadcast`` knows the games of a tournament that is running; those that people start are added
    to it, and kept in the folder ``replays``, of which all games are shown. With a ``token`` only
    those who have it may do more than look. With a ``league`` there is a page about it.
    """
    parts = [leaderboard, games, snake, play, lab, engine_protocol]
    if league is not None:
        parts.append(league_page)
    app = application("Arena", *(part.blueprint for part in parts), token=token)
    watch.mount(app, [replays])
    app.extensions["arena"] = Arena(
        database, roster, broadcast, Hall(database, broadcast, replays), league
    )
    app.after_request(_let_viewers_read)
    return app


def _let_viewers_read(response: Response) -> Response:
    """Official viewers stand elsewhere."""
    if request.blueprint == engine_protocol.blueprint.name:
        response.headers["Access-Control-Allow-Origin"] = "*"
    return response
