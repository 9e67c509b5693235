"""The addresses of the live snake: the Battlesnake API, and what those who run it ask for."""

from __future__ import annotations

import json
from typing import Any, cast

from flask import Blueprint, Response, current_app, jsonify, request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import BadRequest, HTTPException

from battlesnake_gym.boards import json_fields
from battlesnake_server.live import decision_json, front_page
from battlesnake_server.live.live_snake import LiveSnake
from battlesnake_server.live.sessions import Key

_VERSION = "1.0"

blueprint = Blueprint("snake", __name__)
operations = Blueprint("operations", __name__)


def live_snake() -> LiveSnake:
    """The live snake of the current application."""
    return cast(LiveSnake, current_app.extensions["live_snake"])


@blueprint.url_value_preprocessor
def forget_base_path(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """The path in front of the API's own is accepted and ignored."""
    if values:
        values.pop("base", None)


@blueprint.get("/")
def index() -> Response:
    """Who this snake is and how it looks; for a browser, its page."""
    if front_page.asked_for():
        return front_page.page()
    config = current_app.config
    return jsonify(
        apiversion="1",
        author=config["AUTHOR"],
        color=config["COLOR"],
        head=config["HEAD"],
        tail=config["TAIL"],
        version=_VERSION,
    )


@blueprint.post("/start")
def start() -> Response:
    """A game begins."""
    live_snake().start(_key(_body()))
    return jsonify({})


@blueprint.post("/move")
def move() -> Response:
    """Choose a move."""
    body = _body()
    environ = request.environ
    try:
        decision = live_snake().move(
            _key(body), body, environ["server.arrived"], environ.get("server.client")
        )
    except json_fields.BoardError as error:
        raise _refuse(str(error)) from error
    answer: dict[str, Any] = {"move": decision.move, "shout": decision.shout}
    if current_app.config["REASONS"]:
        answer["decision"] = decision_json.write(decision)
    return jsonify(answer)


@blueprint.post("/end")
def end() -> Response:
    """A game is over."""
    body = _body()
    live_snake().end(_key(body), body)
    return jsonify({})


@operations.get("/healthz")
def healthz() -> Response:
    """Whether the process answers; for load balancers."""
    return jsonify(status="ok")


@operations.get("/metrics")
def metrics() -> Response:
    """The counters, in Prometheus' text format."""
    text = generate_latest(live_snake().metrics.registry)
    return Response(text, content_type=CONTENT_TYPE_LATEST)


def _refuse(why: str) -> BadRequest:
    live_snake().metrics.bad_requests.inc()
    return BadRequest(why)


def _body() -> dict[str, Any]:
    """The request's JSON object, whatever its content type says."""
    try:
        data = request.get_data(cache=False)
    except HTTPException:
        raise
    except Exception as error:  # each web server has its own for bodies that break off
        raise _refuse(f"request cannot be read: {error}") from error
    try:
        body = _json(data)
    except (ValueError, RecursionError) as error:
        raise _refuse(f"request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _refuse(f"request must be a JSON object, got {json_fields.format_value(body)}")
    return body


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a number with more digits than Python turns into an integer
        return json.loads(data, parse_int=float)


def _key(body: dict[str, Any]) -> Key:
    try:
        game = json_fields.string(json_fields.child(body, "game", ""), "id", "game")
        you = json_fields.string(json_fields.child(body, "you", ""), "id", "you")
    except json_fields.BoardError as error:
        raise _refuse(str(error)) from error
    return game, you
