"""Views of the live snake: the Battlesnake API, the snake's page, health check and metrics.

The server sends the page to browsers at ``/``. The page shows the customization, the featured game
and the latency of the snake.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    jsonify,
    render_template_string,
    request,
)
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from werkzeug.exceptions import HTTPException

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_server import replay_json
from battlesnake_server.bundle import CUSTOMIZATION_FORMATS
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.live_snake import MAX_TIMEOUT_MS, LiveSnake
from battlesnake_server.live.sessions import Key
from battlesnake_server.page_files import read_board_script, read_page_file
from battlesnake_server.strategy_loader import DEFAULT_SNAKE

_SNAKE_VERSION = "1.0"

blueprint = Blueprint("snake", __name__)
operations = Blueprint("operations", __name__)


def _get_live_snake() -> LiveSnake:
    """Return the live snake of the current application."""
    return cast(LiveSnake, current_app.extensions["live_snake"])


@blueprint.url_value_preprocessor
def _remove_base_path(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Remove the base path from the arguments of the views."""
    if values:
        values.pop("base", None)


@blueprint.get("/")
def index() -> Response:
    """Return the customization as JSON, or the snake's page for a browser."""
    # Only browsers list this type; engines accept any content type or JSON.
    if "text/html" in request.headers.get("Accept", ""):
        return _render_page()
    answer = {"apiversion": "1", "version": _SNAKE_VERSION, **_customization()}
    if notice := current_app.config["NOTICE"]:
        answer["notice"] = notice
    return jsonify(answer)


def _customization() -> dict[str, str]:
    """Return the customization of the snake."""
    return {key: current_app.config[key.upper()] for key in CUSTOMIZATION_FORMATS}


def _render_page() -> Response:
    """Render the snake's page.

    The page requests only ``/now`` from the server.
    """
    config = current_app.config
    text = render_template_string(
        read_page_file("templates/live_snake_page.html"),
        config=config,
        style=read_page_file("static/style.css"),
        customization=replay_json.customization_to_dict(_customization()),
        script=read_board_script("static/live_snake_page.js"),
        name=config["SNAKE"] or config["POLICY"] or DEFAULT_SNAKE,
        url=request.base_url,
    )
    return Response(text, headers={"Vary": "Accept"})


@blueprint.get("/now")
def current_game() -> Response:
    """Return the featured game and the move statistics.

    The query parameter ``since`` is the index of the first frame to return. ``moves`` contains the
    first letters of the snake's moves with which a new example game starts.
    """
    snake = _get_live_snake()
    since, version = (request.args.get(name, 0, int) for name in ("since", "version"))
    moves = request.args.get("moves", "")
    if not re.fullmatch("[udlr]{0,400}", moves):
        abort(400, "moves must contain up to 400 letters u, d, l and r")
    game = snake.featured_game.to_json(max(0, since), version, moves)
    statistics = json.dumps(_move_statistics(snake.metrics))
    return Response(f'{{"game": {game}, "moves": {statistics}}}', mimetype="application/json")


def _move_statistics(metrics: Metrics) -> dict[str, Any]:
    """Return the move statistics.

    Returns:
        A dict with four keys. ``num_moves`` is the number of moves. ``strategy`` is the fraction of
        moves that the strategy chose, in [0, 1]. ``latency_percentiles_ms`` contains the 50th and
        95th percentile of the latency in milliseconds, rounded up to a histogram bound (None above
        the last bound). ``games`` is the number of active games.
    """
    samples = [sample for metric in metrics.moves.collect() for sample in metric.samples]
    by = {s.labels["chosen_by"]: s.value for s in samples if s.name.endswith("_total")}
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for metric in metrics.move_seconds.collect()
        for sample in metric.samples
        if sample.name.endswith("_bucket")
    ]
    count = buckets[-1][1]
    percentiles = [
        next((1000 * le for le, below in buckets if below >= fraction * count), math.inf)
        for fraction in (0.5, 0.95)
    ]
    return {
        "num_moves": count,
        "strategy": by.get("strategy", 0) / max(1, sum(by.values())),
        "latency_percentiles_ms": [
            ms if count and math.isfinite(ms) else None for ms in percentiles
        ],
        "games": metrics.registry.get_sample_value("battlesnake_active_games"),
    }


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
