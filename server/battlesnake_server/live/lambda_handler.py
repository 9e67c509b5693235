"""The live snake on AWS Lambda, behind an HTTP API of API Gateway or a function URL.

Name ``battlesnake_server.live.lambda_handler.handler`` as the function's handler, and its snake in
the environment (`battlesnake_server.live.app.from_environment`). ``docs/hosting.md`` says what a
snake loses there.
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

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]

_MAX_REQUEST_AGE_S = 30.0
"""Seconds; no request has waited for longer, a clock that says so is wrong."""


_WARMUP_TIMEOUT_MS = 100
"""Milliseconds that the move before all others may take."""


def handler_of(config: Mapping[str, Any]) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """What Lambda calls with an event of payload format 2.0.

    Plays a move before the first one is asked for, so that whatever wakes the function, like an
    engine's ``/start``, finds it ready: the first move of a process takes longer than others.
    """
    app = create_app(from_environment() | dict(config))
    board = Board.new(
        11, 11, 2, game=Game(seed=1, id="before all games", timeout=_WARMUP_TIMEOUT_MS)
    )
    for path in ("/move", "/end"):
        app.test_client().post(path, data=json.dumps(board.to_api("snake_0")))
    return make_lambda_handler(_timed(app))


def _timed(application: Wsgi) -> Wsgi:
    """Count the time of a move from when API Gateway was asked, not from when Lambda was there."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        context = environ.get("apig_wsgi.request_context") or {}
        asked = context.get("timeEpoch")
        if isinstance(asked, int | float):
            waited = time.time() - asked / 1000
            if 0 < waited < _MAX_REQUEST_AGE_S:
                environ["server.arrived"] = time.perf_counter() - waited
        return application(environ, start_response)

    return answer


handler = handler_of({})
