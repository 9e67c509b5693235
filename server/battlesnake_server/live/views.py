"""Views of the live snake: the Battlesnake API, health check and metrics."""

from __future__ import annotations

import json
from typing import Any, cast

from flask import Blueprint, Response, current_app, jsonify, request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import HTTPException

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_server import replay_json
from battlesnake_server.live import front_page
from battlesnake_server.live.live_snake import MAX_TIMEOUT_MS, LiveSnake
from battlesnake_server.live.sessions import Key

_SNAKE_VERSION = "1.0"

blueprint = Blueprint("snake", __name__)
operations = Blueprint("operations", __name__)


def _get_live_snake() -> LiveSnake:
    """Return the live snake of the current application."""
    return cast(LiveSnake, current_app.extensions["live_snake"])


@blueprint.url_value_preprocessor
def _remove_base_path(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Remove the base path from the arguments of the API's views."""
    if values:
        values.pop("base", None)


@blueprint.get("/")
def index() -> Response:
    """Return the customization as JSON, or the snake's page for a browser."""
    # Only browsers list this type; engines accept any content type or JSON.
    if "text/html" in request.headers.get("Accept", ""):
        return front_page.render_page()
    config = current_app.config
    answer = {
        "apiversion": "1",
        "author": config["AUTHOR"],
        "color": config["COLOR"],
        "head": config["HEAD"],
        "tail": config["TAIL"],
        "version": _SNAKE_VERSION,
    }
    if config["NOTICE"]:
        answer["notice"] = config["NOTICE"]
    return jsonify(answer)


@blueprint.post("/start")
def start() -> Response:
    """Handle ``/start``: prepare the strategy for a game."""
    _get_live_snake().start(_session_key(_parse_body()))
    return jsonify({})


@blueprint.post("/move")
def move() -> Response:
    """Handle ``/move``: choose a move."""
    body = _parse_body()
    environ = request.environ
    decision = _get_live_snake().move(
        _session_key(body),
        body,
        environ["server.arrived"],
        environ.get("server.disconnected"),
        request.content_length or 0,
        environ.get("server.max_timeout_ms", MAX_TIMEOUT_MS),
    )
    answer: dict[str, Any] = {"move": decision.move, "shout": decision.shout}
    if current_app.config["SEND_DECISIONS"]:
        answer["decision"] = replay_json.decision_to_dict(decision)
    return jsonify(answer)


@blueprint.post("/end")
def end() -> Response:
    """Handle ``/end``: delete the session of a game."""
    body = _parse_body()
    _get_live_snake().end(_session_key(body), body, request.content_length or 0)
    return jsonify({})


@operations.get("/healthz")
def healthz() -> Response:
    """Return status 200 for load balancers."""
    return jsonify(status="ok")


@operations.get("/metrics")
def metrics() -> Response:
    """Return the metrics in Prometheus' text format."""
    text = generate_latest(_get_live_snake().metrics.registry)
    return Response(text, content_type=CONTENT_TYPE_LATEST)


@blueprint.errorhandler(BoardError)
def _reject_request(error: BoardError) -> tuple[Response, int]:
    """Count a malformed request, and return status 400."""
    _get_live_snake().metrics.bad_requests.inc()
    return jsonify(error=str(error)), 400


def _parse_body() -> dict[str, Any]:
    """Return the request's JSON object, regardless of the content type."""
    try:
        data = request.get_data(cache=False)
    except HTTPException:
        raise
    except Exception as error:  # Web servers raise different exceptions for incomplete bodies.
        raise BoardError(f"request cannot be read: {error}") from error
    try:
        with _get_live_snake().parse_gate.admit(len(data)):
            body = _parse_json(data)
    except (ValueError, RecursionError) as error:
        raise BoardError(f"request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BoardError(f"request must be a JSON object, got {json_fields.format_value(body)}")
    return body


def _parse_json(data: bytes) -> object:
    """Parse JSON; if an integer is too long, parse all integers as floats."""
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        raise
    except ValueError:  # A number may have more digits than Python converts to an integer.
        return json.loads(data, parse_int=float)


def _session_key(body: dict[str, Any]) -> Key:
    """Return the game id and the snake id of a request."""
    game, you = (
        json_fields.string(json_fields.child(body, key, ""), "id", key) for key in ("game", "you")
    )
    return game, you
