"""The server of a snake that `battlesnake-gym pack --for codeclash` packed.

Python 3.10 and what lies in this folder are all it needs. PORT of the environment is where it
listens; snake.json says what plays, and how it looks.
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

_HERE = Path(__file__).parent

_MOVE_TIME_S = 0.1
"""For a move of a search. The arena gives 0.5 s, but ends a game without a result after 120 s."""

_RESERVE_S = 0.1
"""Of the time that a game allows, in seconds: for the way there and back."""

_MOST_GAMES = 1000
"""At once; of more, those that began first are forgotten."""


_SESSIONS: dict[tuple[str, str], snakes.Strategy] = {}
"""The strategies by the ids of game and snake."""


@functools.cache
def facts() -> dict[str, Any]:
    """What `pack` wrote: ``snake``, ``positions`` and ``looks``."""
    written: dict[str, Any] = json.loads((_HERE / "snake.json").read_text("utf-8"))
    return written


@functools.cache
def factory() -> snakes.Factory:
    """What builds the snake's strategies."""
    if (_HERE / "snake.evaluation").exists():
        evaluation = Evaluation.load(_HERE / "snake.evaluation")
        return lambda seed: Search(evaluation=evaluation, decoupled=True)
    with snakes.capture_registrations() as own:
        if (_HERE / "rules.py").exists():
            extensions.module(_HERE / "rules.py", "the snake")
    name = facts()["snake"]
    return own.get(name) or snakes.factory(name)


def _key(game_state: dict[str, Any]) -> tuple[str, str]:
    return game_state["game"]["id"], game_state["you"]["id"]


def info() -> dict[str, Any]:
    """How the snake looks."""
    return {"apiversion": "1", **facts()["looks"]}


def start(game_state: dict[str, Any]) -> None:
    """Begin a game."""
    key = _key(game_state)
    strategy = factory()(zlib.crc32(repr(key).encode()))
    positions = facts()["positions"]
    _SESSIONS[key] = snakes.FixedNodes(strategy, positions) if positions else strategy  # type: ignore[arg-type]
    while len(_SESSIONS) > _MOST_GAMES:
        _SESSIONS.pop(next(iter(_SESSIONS)), None)


def end(game_state: dict[str, Any]) -> None:
    """Forget a game."""
    _SESSIONS.pop(_key(game_state), None)


def move(game_state: dict[str, Any]) -> dict[str, str]:
    """Choose a move; a safe one where the snake fails."""
    board = Board.from_api(game_state)
    try:
        if _key(game_state) not in _SESSIONS:
            start(game_state)
        allowed = (game_state["game"].get("timeout") or 500) / 1000
        decision = _SESSIONS[_key(game_state)](
            board, max(0.01, min(_MOVE_TIME_S, allowed - _RESERVE_S))
        )
        return {"move": decision.move}
    except Exception:  # an engine punishes silence, not a bad move
        traceback.print_exc()
        return {"move": (board.safe_moves() or MOVES)[0]}


def run_server(handlers: dict[str, Callable[..., Any]]) -> None:
    """Answer requests until the process is ended."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.answer(handlers["info"]())

        do_HEAD = do_GET  # noqa: N815

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(handlers[self.path.strip("/")](asked) or {})

        def answer(self, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a round has a hundred thousand requests."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    port = int(os.environ.get("PORT") or 8000)
    factory()(0)  # so that a snake that cannot play ends here
    Server(("0.0.0.0", port), Handler).serve_forever()


if __name__ == "__main__":
    run_server({"info": info, "start": start, "move": move, "end": end})
