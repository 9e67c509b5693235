"""The addresses of the live snake: the Battlesnake API, and two pages for those who run it."""

from __future__ import annotations

import json
from typing import Any, cast

from flask import Blueprint, Response, current_app, jsonify, request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import BadRequest, HTTPException

from battlesnake_gym import fields
from battlesnake_gym.board import Board
from server import reasons
from server.live import LiveSnake
from server.sessions import Key

VERSION = "1.0"

MOST_SNAKES = 64
"""Snakes on a board; four times as many as in any game, and few enough to think about."""

blueprint = Blueprint("snake", __name__)
operations = Blueprint("operations", __name__)


def live_snake() -> LiveSnake:
    """The live snake of the current application."""
    return cast(LiveSnake, current_app.extensions["live_snake"])


@blueprint.url_value_preprocessor
def forget_base_path(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """The path in front of the API's own is accepted and not looked at."""
    if values:
        values.pop("base", None)


@blueprint.get("/")
def index() -> Response:
    """Who this snake is and how it looks."""
    config = current_app.config
    return jsonify(
        apiversion="1",
        author=config["AUTHOR"],
        color=config["COLOR"],
        head=config["HEAD"],
        tail=config["TAIL"],
        version=VERSION,
    )


@blueprint.post("/start")
def start() -> Response:
    """A game begins."""
    live_snake().start(_key(_body()))
    return jsonify({})


@blueprint.post("/move")
@blueprint.post("/invocations")  # where SageMaker's endpoints pass requests on
def move() -> Response:
    """Choose a move."""
    body = _body()
    key = _key(body)
    decision = live_snake().move(key, _board(body), request.environ["server.arrived"])
    answer: dict[str, Any] = {"move": decision.move, "shout": decision.shout}
    if current_app.config["REASONS"]:
        answer["decision"] = reasons.write(decision)
    return jsonify(answer)


@blueprint.post("/end")
def end() -> Response:
    """A game is over."""
    live_snake().end(_key(_body()))
    return jsonify({})


@operations.get("/healthz")
@operations.get("/ping")  # where SageMaker's endpoints look
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
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _refuse(f"request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _refuse(f"request must be a JSON object, got {fields.shown(body)}")
    return body


def _key(body: dict[str, Any]) -> Key:
    try:
        game = fields.string(fields.child(body, "game", ""), "id", "game")
        you = fields.string(fields.child(body, "you", ""), "id", "you")
    except fields.BoardError as error:
        raise _refuse(str(error)) from error
    return game, you


def _board(body: dict[str, Any]) -> Board:
    try:
        board = Board.from_api(body)
    except (ValueError, OverflowError) as error:
        raise _refuse(str(error)) from error
    if len(board.snakes) > MOST_SNAKES:
        raise _refuse(f"board.snakes has {len(board.snakes)} snakes; at most {MOST_SNAKES} play")
    if board.you_id is None:
        raise _refuse("you.body is missing or empty; list its cells, head first")
    return board
