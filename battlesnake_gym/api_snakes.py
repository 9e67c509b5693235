"""Snakes in Python files that receive requests of the Battlesnake API.

A file may define the functions ``info``, ``start``, ``move`` and ``end`` of the official starter
project, a single function ``move`` that returns ``"up"``, or a web application: an object ``app``
that implements WSGI (Flask) or ASGI (FastAPI). The functions receive the request's JSON as a dict.
Web applications run in this process, without a socket.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import io
import json
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any
from wsgiref.util import setup_testing_defaults

from battlesnake_gym.boards.board import Board
from battlesnake_gym.decisions import Decision, StrategyFactory

_Send = Callable[[str, "dict[str, Any] | None"], Any]
"""Function that sends a request to a path ("", "start", "move", "end") and returns the reply."""

_CUSTOMIZATION_KEYS = ("color", "head", "tail", "author")


class _ApiSnake:
    """Strategy that sends one game's requests to a user's functions or web application.

    The snake receives ``end``, with its last position, when the strategy is discarded.
    """

    def __init__(self, send: _Send) -> None:
        self._send = send
        self._last: dict[str, Any] = {}
        weakref.finalize(self, _send_end, send, self._last)

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Request a move for ``board.you``.

        Raises:
            TypeError: If the reply is neither a move nor an object with a move.
        """
        body = board.to_limited_api()
        if not self._last:
            self._send("start", body)
        self._last.update(body)
        reply = self._send("move", body)
        if isinstance(reply, dict) and isinstance(reply.get("move"), str):
            return Decision(reply["move"], shout=str(reply.get("shout") or ""))
        if isinstance(reply, str):
            return Decision(reply)
        raise TypeError(f'move returns "up" or {{"move": "up"}}, got {reply!r:.100}')


def _send_end(send: _Send, last: dict[str, Any]) -> None:
    """Send ``end`` if the game has started."""
    if last:
        send("end", last)


def find_factory(module: ModuleType) -> StrategyFactory | None:
    """Return the factory of the snake that a module defines, or None.

    The attribute ``customization`` of the factory contains the strings of ``info``.

    Raises:
        ValueError: If a function is async, or ``info`` returns a customization that is not text.
    """
    app = getattr(module, "app", None)
    if callable(app):
        is_asgi = inspect.iscoroutinefunction(type(app).__call__)
        send: _Send = _AsgiClient(app) if is_asgi else _WsgiClient(app)
    elif callable(getattr(module, "move", None)):
        send = _FunctionClient(module)
    else:
        return None

    def make(seed: int) -> _ApiSnake:
        """Play the snake of a Python file."""
        return _ApiSnake(send)

    info = send("", None)
    given = info if isinstance(info, dict) else {}
    customization = {key: given[key] for key in _CUSTOMIZATION_KEYS if given.get(key)}
    for key, value in customization.items():
        if not isinstance(value, str):
            raise ValueError(
                f"{module.__file__}: info returns the {key} {value!r:.60}; return text"
            )
    make.__doc__ = inspect.getdoc(module) or make.__doc__
    make.customization = customization  # type: ignore[attr-defined]
    return make


class _FunctionClient:
    """Client of functions with the names of the starter project; only ``move`` is required."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        for name in ("info", "start", "move", "end"):
            if inspect.iscoroutinefunction(getattr(module, name, None)):
                raise ValueError(f"{module.__file__}: {name} is async; write def, not async def")

    def __call__(self, path: str, body: dict[str, Any] | None) -> Any:
        function = getattr(self._module, path or "info", None)
        if not callable(function):
            return None
        return function() if body is None else function(json.loads(json.dumps(body)))


class _WsgiClient:
    """Client of a WSGI application, such as a Flask application."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    def __call__(self, path: str, body: dict[str, Any] | None) -> Any:
        sent = b"" if body is None else json.dumps(body).encode()
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "GET" if body is None else "POST", "PATH_INFO": f"/{path}",
            "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(sent)),
            "wsgi.input": io.BytesIO(sent), "wsgi.multithread": True,
        }  # fmt: skip
        setup_testing_defaults(environ)
        status: list[str] = []
        chunks = self._app(environ, lambda line, headers, error=None: status.append(line))
        try:
            text = b"".join(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
        return _parse_reply(path, int(status[0].split()[0]), text)


class _AsgiClient:
    """Client of an ASGI application, such as a FastAPI application.

    A thread runs the application's event loop, which all requests share.
    """

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="asgi-snake", daemon=True).start()
        self._started = threading.Event()
        self._lifespan = asyncio.run_coroutine_threadsafe(self._run_lifespan(), self._loop)
        self._started.wait(10)
        atexit.register(self._lifespan.cancel)

    async def _run_lifespan(self) -> None:
        """Start the application; an application without a lifespan raises an exception."""
        requests = [{"type": "lifespan.startup"}]

        async def receive() -> dict[str, Any]:
            return requests.pop() if requests else await self._loop.create_future()

        async def send(message: dict[str, Any]) -> None:
            self._started.set()

        try:
            await self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        finally:
            self._started.set()

    def __call__(self, path: str, body: dict[str, Any] | None) -> Any:
        return asyncio.run_coroutine_threadsafe(self._request(path, body), self._loop).result()

    async def _request(self, path: str, body: dict[str, Any] | None) -> Any:
        sent = b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": "GET" if body is None else "POST", "path": f"/{path}",
            "raw_path": f"/{path}".encode(), "root_path": "", "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost"),
                        (b"content-length", str(len(sent)).encode())],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        replies: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            replies.append(message)

        await self._app(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in replies)
        return _parse_reply(path, replies[0]["status"], text)


def _parse_reply(path: str, status: int, text: bytes) -> Any:
    """Parse the JSON of a reply; only ``move`` must succeed."""
    if status >= 400:
        if path == "move":
            raise ValueError(f"/move returned status {status}: {text[:100]!r}")
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace").strip()
