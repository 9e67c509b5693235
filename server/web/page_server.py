"""The web server of the pages, in a thread beside whatever else the process does.

An event loop (uvicorn) holds the connections, a few threads answer. A request takes a thread once
it has arrived as a whole and gives it back once its answer is made, so that neither who sends nor
who reads slowly keeps one. Connections have deadlines, and where there are too many the one that
has been silent for longest makes room.

Only requests whose ``Host`` is an address, this machine or a name that the operator gave are
answered: a page elsewhere whose name suddenly leads to this machine (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import uvicorn
from a2wsgi import WSGIMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

REQUEST_SECONDS = 10.0
"""From the first byte, or the connection, to the last byte of a request."""

ANSWER_SECONDS = 60.0
"""From there to the last byte of the answer, however slowly it is read."""

IDLE_SECONDS = 15
"""How long a connection stays open between two requests."""

MOST_CONNECTIONS = 400
"""Below what a process may usually open (1024 files)."""

MOST_UNSENT = 256 << 20
"""Bytes of answers that slow readers may keep waiting here, all of them together."""

LARGEST_REQUEST = 256 * 1024
"""Bytes of a request's body; the largest board that is drawn needs a fifth of it."""

PIECE = 1 << 16

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Events = Callable[[str, Receive, Send], Awaitable[None]]
"""Talks to the websocket at a path."""


class PageServer:
    """Answers on ``listener`` for a WSGI application, from `start` to `stop`.

    ``names`` are hosts that requests may name besides addresses and this machine; ``events`` talks
    to websockets, of which there are none without it; ``threads`` make answers.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        listener: socket.socket,
        *,
        names: Iterable[str] = (),
        events: Events | None = None,
        threads: int = 8,
    ) -> None:
        self._listener = listener
        self._names = {name.lower() for name in (*names, socket.gethostname())}
        self._events = events
        self._wsgi = WSGIMiddleware(app, workers=threads)
        self._unsent = 0
        config = uvicorn.Config(
            self._answer,
            http=_Connection,
            ws=_Viewer if events else "none",
            interface="asgi3",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            ws_max_size=1024,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def wait(self) -> None:
        """Return when interrupted."""
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.should_exit = True
        self._thread.join()
        self._wsgi.executor.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """The ASGI door."""
        if not self._knows(scope):
            await _refuse(scope, send, 421, _STRANGER)
        elif scope["type"] == "websocket":
            assert self._events is not None
            await self._events(scope["path"], receive, send)
        else:
            await self._answer_whole(scope, receive, send)

    async def _answer_whole(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            body = await _read_whole(receive)
        except ConnectionResetError:
            return
        if body is None:
            await _refuse(scope, send, 413, f"at most {LARGEST_REQUEST} bytes may be sent")
            return
        if self._unsent > MOST_UNSENT:
            await _refuse(scope, send, 503, "too much waits to be read; try again later")
            return
        made: list[Message] = []

        async def read() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Message) -> None:
            made.append(message)

        await self._wsgi(scope, read, keep)  # type: ignore[arg-type]
        size = sum(len(message.get("body", b"")) for message in made)
        self._unsent += size
        try:
            for message in made:
                for piece in _pieces(message):
                    await send(piece)
        finally:
            self._unsent -= size

    def _knows(self, scope: Message) -> bool:
        given = [value.decode("latin1") for name, value in scope["headers"] if name == b"host"]
        return len(given) == 1 and is_known_host(given[0], self._names)


_STRANGER = (
    "this host name is not known here; use the address, or name it with --allow-host at the start"
)


def is_known_host(header: str, names: Iterable[str]) -> bool:
    """Whether a ``Host`` header names this machine: by an address, as localhost, or by a name.

    >>> [is_known_host(host, ["arena.lan"]) for host in ("127.0.0.1:8791", "[::1]", "Arena.lan:80")]
    [True, True, True]
    >>> is_known_host("rebound.example:8791", ["arena.lan"])
    False
    """
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::\d{1,5})?", header.lower())
    if found is None:
        return False
    host = found[1] or found[2].removesuffix(".")
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _read_whole(receive: Receive) -> bytes | None:
    """The body of a request, None where it is too long; raises where its sender is gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        body += message.get("body", b"")
        if len(body) > LARGEST_REQUEST:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _pieces(message: Message) -> Iterable[Message]:
    """The message in pieces after each of which a slow reader is waited for."""
    body = message.get("body", b"")
    if len(body) <= PIECE:
        return [message]
    cuts = range(0, len(body), PIECE)
    return [
        {**message, "body": body[cut : cut + PIECE],
         "more_body": message.get("more_body", False) or cut != cuts[-1]}
        for cut in cuts
    ]  # fmt: skip


async def _refuse(scope: Message, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    text = why.encode() + b"\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


class _Connection(H11Protocol):
    """A connection that is given so long for a request, and then so long for its answer."""

    _timer: asyncio.TimerHandle | None = None
    _patient = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room where there are too many; the time for the first request begins."""
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            waiting = [
                other
                for other in self.connections
                if isinstance(other, _Connection) and not other.answering
            ]
            silent = min(waiting, key=lambda other: other.since)
            self.connections.discard(silent)  # it is told that it is lost only later
            silent.transport.abort()
        self._start(REQUEST_SECONDS)

    @property
    def answering(self) -> bool:
        """Whether a request has arrived as a whole, and its answer has not left."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """The time for a request begins with its first byte."""
        if self._timer is None:
            self.since = self.loop.time()
            self._start(REQUEST_SECONDS)
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Between two requests only the limit on idle connections holds."""
        self._cancel()
        self.since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to wait for."""
        self._cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """From now on another protocol has the connection."""
        self._cancel()
        super().handle_websocket_upgrade(event)

    def _start(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._overdue)

    def _cancel(self) -> None:
        self._patient = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        if self.answering and not self._patient:
            self._patient = True
            self._start(ANSWER_SECONDS)
        else:
            self.transport.abort()


class _Viewer(WSProtocol):
    """A websocket that is closed where nobody reads what is sent."""

    _timer: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """More is sent than is read."""
        super().pause_writing()
        self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It was read."""
        if self._timer is not None:
            self._timer.cancel()
        super().resume_writing()
