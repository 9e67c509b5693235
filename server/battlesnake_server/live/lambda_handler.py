"""The live snake on AWS Lambda.

An HTTP API of API Gateway or a function URL sends the requests. Set the function's handler to
``battlesnake_server.live.lambda_handler.handler``, and configure the snake by environment variables
(`battlesnake_server.live.app.from_environment`). ``docs/how-to/serve-on-lambda.md`` lists the
limits of Lambda.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apig_wsgi import make_lambda_handler

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_server.live.app import create_app, from_environment
from battlesnake_server.live.featured_game import WARMUP_GAME_ID

WsgiApplication = Callable[[dict[str, Any], Any], Iterable[bytes]]

_MAX_REQUEST_AGE_S = 30.0
"""Maximum age of a request in seconds.

A larger age means that a clock is wrong.
"""


_WARMUP_TIMEOUT_MS = 100
"""Timeout of the warm-up move in milliseconds."""


def build_handler(config: Mapping[str, Any]) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Return the handler that Lambda calls with events of payload format 2.0.

    This function plays one warm-up move, because the first move of a process is slower. Any
    request that starts the process, such as ``/start``, thereby prepares the process for the game.

    Args:
        config: Configuration keys that override the environment.
    """
    app = create_app(from_environment() | dict(config))
    spec = app.extensions["live_snake"].featured_game.example_spec
    game = Game(seed=1, id=WARMUP_GAME_ID, timeout=_WARMUP_TIMEOUT_MS)
    board = Board.new(spec.width, spec.height, 2, game=game)
    for path in ("/move", "/end"):
        app.test_client().post(path, data=json.dumps(board.to_api("snake_0")))
    return make_lambda_handler(_arrival_middleware(app))


def _arrival_middleware(application: WsgiApplication) -> WsgiApplication:
    """Set the arrival time at API Gateway, and the remaining time of the function."""

    def set_arrival_time(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        context = environ.get("apig_wsgi.request_context") or {}
        arrived_ms = context.get("timeEpoch")
        if isinstance(arrived_ms, int | float):
            waited = time.time() - arrived_ms / 1000
            if 0 < waited < _MAX_REQUEST_AGE_S:
                environ["server.arrived"] = time.perf_counter() - waited
        if (function := environ.get("apig_wsgi.context")) is not None:
            environ["server.max_timeout_ms"] = function.get_remaining_time_in_millis()
        return application(environ, start_response)

    return set_arrival_time


handler = build_handler({})
