"""Server of a snake packed by ``battlesnake-gym pack --format codeclash``.

The server needs only Python 3.10 and the files of this directory. The server listens on the port in
the environment variable PORT. ``snake.json`` describes the snake.
"""

from __future__ import annotations

import functools
import json
import os
import traceback
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common import extensions
from battlesnake_gym.rules import MOVES
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_heuristics.search.search import Search

_DIRECTORY = Path(__file__).parent

_MOVE_TIME_S = 0.1
"""Search time per move in seconds.

The arena allows 0.5 s per move, and cancels games that last longer than 120 s.
"""

_ROUND_TRIP_RESERVE_S = 0.1
"""Part of the game's timeout reserved for the network round trip, in seconds."""

_MAX_GAMES = 1000
"""Maximum number of sessions in memory.

If a new session exceeds the maximum, the oldest session is deleted.
"""


_SESSIONS: dict[tuple[str, str], snakes.Strategy] = {}
"""Strategies by game id and snake id."""


@functools.cache
def load_metadata() -> dict[str, Any]:
    """Load the metadata that ``battlesnake-gym pack`` wrote.

    The keys are ``snake``, ``nodes`` and ``customization``.
    """
    written: dict[str, Any] = json.loads((_DIRECTORY / "snake.json").read_text("utf-8"))
    return written


@functools.cache
def load_factory() -> snakes.StrategyFactory:
    """Load the evaluation or the extension code, and return the snake's factory."""
    if (_DIRECTORY / "snake.evaluation").exists():
        evaluation = Evaluation.load(_DIRECTORY / "snake.evaluation")
        return lambda seed: Search(evaluation=evaluation, decoupled=True)
    with snakes.capture_registrations() as own:
        if (_DIRECTORY / "rules.py").exists():
            extensions.load_file(_DIRECTORY / "rules.py", "the snake")
    name = load_metadata()["snake"]
    return own.get(name) or snakes.factory(name)


def _session_key(game_state: dict[str, Any]) -> tuple[str, str]:
    """Return the game id and the snake id of a request."""
    return game_state["game"]["id"], game_state["you"]["id"]


def info() -> dict[str, Any]:
    """Return the response to ``GET /``: the API version and the customization."""
    return {"apiversion": "1", **load_metadata()["customization"]}


def start(game_state: dict[str, Any]) -> None:
    """Build the strategy of a new game."""
    key = _session_key(game_state)
    strategy = load_factory()(zlib.crc32(repr(key).encode()))
    nodes = load_metadata()["nodes"]
    _SESSIONS[key] = snakes.FixedNodesSearch(strategy, nodes) if nodes else strategy  # type: ignore[arg-type]
    while len(_SESSIONS) > _MAX_GAMES:
        _SESSIONS.pop(next(iter(_SESSIONS)), None)


def end(game_state: dict[str, Any]) -> None:
    """Delete the strategy of a finished game."""
    _SESSIONS.pop(_session_key(game_state), None)


def move(game_state: dict[str, Any]) -> dict[str, str]:
    """Return the response to ``/move``.

    If the snake fails, the response is a safe move.
    """
    board = Board.from_api(game_state)
    try:
        if _session_key(game_state) not in _SESSIONS:
            start(game_state)
        allowed = (game_state["game"].get("timeout") or 500) / 1000
        decision = _SESSIONS[_session_key(game_state)](
            board, max(0.01, min(_MOVE_TIME_S, allowed - _ROUND_TRIP_RESERVE_S))
        )
        return {"move": decision.move}
    except Exception:  # A safe move is better than no response.
        traceback.print_exc()
        return {"move": (board.safe_moves() or MOVES)[0]}


def run_server(handlers: dict[str, Callable[..., Any]]) -> None:
    """Serve requests until the process ends.

    Args:
        handlers: Functions that handle the requests ``info``, ``start``, ``move`` and ``end``.
    """

    class Handler(BaseHTTPRequestHandler):
        """Handler that calls the function of each request."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.send_json(handlers["info"]())

        do_HEAD = do_GET  # noqa: N815

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_json(handlers[self.path.strip("/")](body) or {})

        def send_json(self, content: dict[str, Any]) -> None:
            """Send a response with the JSON of ``content``."""
            data = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Discard the request log, because a tournament has 100,000 requests."""

    class Server(ThreadingHTTPServer):
        """Server with one thread per connection."""

        daemon_threads = True
        request_queue_size = 128

    port = int(os.environ.get("PORT") or 8000)
    load_factory()(0)  # The process exits here if the snake cannot play.
    Server(("127.0.0.1", port), Handler).serve_forever()  # The arena runs on this machine.


if __name__ == "__main__":
    run_server({"info": info, "start": start, "move": move, "end": end})
