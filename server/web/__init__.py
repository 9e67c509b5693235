"""The arena's pages: who is strongest, games being played and kept, and a board to ask about."""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response, request
from sqlalchemy.engine import Engine

from server.arena.league_file import Plan
from server.replays.analyses import Analyses
from server.web import board_protocol as engine_protocol
from server.web import compress, games, lab, leaderboard, play, snake, visitors
from server.web import league as league_page
from server.web.context import Arena
from server.web.matches import Hall
from server.web.page_server import LARGEST_REQUEST
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
    to it, and kept in the folder ``replays``. With a ``token`` only those who have it may do more
    than look. With a ``league`` there is a page about it.
    """
    app = Flask("server")  # whose folders hold the templates and the board component
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_REQUEST
    app.extensions["arena"] = Arena(
        database, roster, broadcast, Hall(database, broadcast, replays), Analyses(), league
    )
    for part in (leaderboard, games, snake, play, lab, engine_protocol):
        app.register_blueprint(part.blueprint)
    if league is not None:
        app.register_blueprint(league_page.blueprint)
    app.context_processor(lambda: {"league": league})
    visitors.guard(app, token)
    app.after_request(_guard)
    app.after_request(compress.compressed)
    return app


def _guard(response: Response) -> Response:
    """Let browsers refuse what these pages do not hold themselves, save for official viewers."""
    if request.blueprint == engine_protocol.blueprint.name:
        response.headers["Access-Control-Allow-Origin"] = "*"
    kinds = ("script", "style", "img", "connect")
    response.headers["Content-Security-Policy"] = "; ".join(
        ["default-src 'none'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"]
        + [f"{kind}-src 'self'" for kind in kinds]
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-cache"
    return response
