"""What all pages of the arena share, and how their requests are read and refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from flask import Response, current_app, jsonify, request
from sqlalchemy.engine import Engine
from werkzeug.exceptions import HTTPException

from battlesnake_gym.json_fields import BoardError
from server.arena.league_file import Plan
from server.replays.analyses import Analyses
from server.web.matches import Hall
from server.web.roster import Roster
from server.web.timeline import Broadcast


@dataclass(frozen=True, slots=True)
class Arena:
    """The results, who may play, the games that are on, who plays those that people start, who
    looks into those that are over, and the league that is played here, if any.
    """

    database: Engine
    roster: Roster
    broadcast: Broadcast
    hall: Hall
    analyses: Analyses
    league: Plan | None


def arena() -> Arena:
    """The arena of the current application."""
    return cast(Arena, current_app.extensions["arena"])


def body() -> dict[str, Any]:
    """The JSON object that was sent; raises `BoardError` where it is none.

    Only a request that says it is JSON is read: no other site's page can send one unasked.
    """
    if not request.is_json:
        raise BoardError("request must have the content type application/json")
    try:
        sent = request.get_json()
    except (HTTPException, RecursionError) as error:
        raise BoardError("request is not JSON") from error
    if not isinstance(sent, dict):
        raise BoardError(f"request must be a JSON object, got {type(sent).__name__}")
    return sent


MOST = 2**31 - 1
"""The largest number that an address may hold: what every database takes for an id."""


def number(name: str, usual: int, *, least: int = 0, most: int = MOST) -> int:
    """The whole number ``?name=`` of the current request, brought into its bounds."""
    return min(max(least, request.args.get(name, usual, int)), most)


def refusal(error: Exception | str, status: int = 400) -> Response:
    """An answer that says what was wrong, as JSON for the page's scripts."""
    response = jsonify(error=str(error))
    response.status_code = status
    return response
