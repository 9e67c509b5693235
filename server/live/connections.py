"""HTTP connections that cost little until a whole request is there.

One event loop reads all of them; only a request that has arrived as a whole goes on, to the
function ``dispatch``. So a client that sends slowly, or nothing, takes a socket and a few
kilobytes. What each may take is bounded by `Limits`: when it is too much, or for too long, the
connection is closed; and where there are too many connections, the one that has waited longest
makes room for the new one.

The bytes are parsed by httptools, which is the parser of Node.js.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import httptools

from server.live.clients import Client

Headers = Sequence[tuple[str, str]]

REFUSED_SECONDS = 1.0
"""How long a refused client is listened to, so that it gets to read why."""


class TooLargeError(Exception):
    """A request goes beyond the limits; ``status`` says which."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may take: seconds, bytes and their number."""

    request_seconds: float = 5.0
    """From the first byte of a request to its last, and from a connection to its first byte."""

    idle_seconds: float = 75.0
    """Between two requests on one connection."""

    head: int = 1 << 14
    """Bytes of a request's first line and headers."""

    body: int = 1 << 18
    """Bytes of a request's body."""

    in_a_row: int = 16
    """Requests sent on one connection before the first of them was answered."""

    connections: int = 2000
    """Open at once. Above it the one that has waited longest is closed."""

    unanswered: int = 1 << 25
    """Bytes of all bodies that have arrived, in part or as a whole, and are not answered."""


@dataclass(slots=True, eq=False)
class Request:
    """One whole request; ``arrived`` (`time.perf_counter`) is when its first byte was read."""

    method: str
    path: bytes
    query: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    arrived: float
    keep_alive: bool
    peer: tuple[str, int]
    client: Client = field(default_factory=Client)


Answer = Callable[[str, Headers, bytes], None]
"""What `Dispatch` calls once, in the event loop: with status, headers and body of the answer."""

Dispatch = Callable[[Request, Answer], None]

TEXT: Headers = (("Content-Type", "text/plain; charset=utf-8"),)

OFFERS = (b"connection", b"upgrade", b"http2-settings")
"""Headers that offer another protocol."""


class Hub:
    """All connections of a process, by what they do; in the order in which they began with it.

    ``idle`` ones wait for a request, ``sending`` ones for the rest of it: since when, and until
    when (`time.monotonic`). ``unanswered`` counts the bytes of bodies that are held in memory.
    """

    def __init__(self, dispatch: Dispatch, limits: Limits = Limits()) -> None:
        self.dispatch = dispatch
        self.limits = limits
        self.date = b""
        self.stopping = False
        self.unanswered = 0
        self.answering: set[Connection] = set()
        self.idle: dict[Connection, tuple[float, float]] = {}
        self.sending: dict[Connection, tuple[float, float]] = {}
        self.tick()

    def open(self) -> Connection:
        """What to do with a new connection."""
        return Connection(self)

    def tick(self) -> None:
        """Close whatever has taken too long; to be called a few times a second."""
        self.date = formatdate(usegmt=True).encode()
        now = time.monotonic()
        for waiting in (self.sending, self.idle):
            for connection in [c for c, (_, until) in waiting.items() if until <= now]:
                connection.close()

    def make_room(self) -> None:
        """Close those that have waited longest for their clients, until the limits are kept."""
        limits = self.limits
        while len(self.idle) + len(self.sending) + len(self.answering) > limits.connections:
            first = [
                next(iter(waiting.items())) for waiting in (self.idle, self.sending) if waiting
            ]
            if not first:
                return
            min(first, key=lambda entry: entry[1])[0].close()
        while self.unanswered > limits.unanswered and self.sending:
            next(iter(self.sending)).close()

    def is_full(self) -> bool:
        """Whether there is no room for the body of another request."""
        return self.unanswered > self.limits.unanswered

    def close(self) -> None:
        """Close all connections."""
        for connection in [*self.idle, *self.sending, *self.answering]:
            connection.close()


class Connection(asyncio.Protocol):
    """One connection: it is idle, sending a request, or being answered."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._asked: Request | None = None
        self._keep_alive = True
        self._arrived: float | None = None
        self._begin()

    # --- asyncio's side -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = transport.get_extra_info("peername") or ("", 0)
        self._wait(self._hub.idle, self._hub.limits.request_seconds)
        self._hub.make_room()

    def data_received(self, data: bytes) -> None:
        """Some bytes: of one request, of a part of one, or of several."""
        if not self._keep_alive:
            return
        if self._arrived is None:
            self._arrived = time.perf_counter()
            if self._asked is None:
                self._wait(self._hub.sending, self._hub.limits.request_seconds)
        if not self._in_body:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
            if not self._in_body:
                self._check_head()
        except httptools.HttpParserUpgrade as upgrade:
            self._stay_with_http1(data[upgrade.args[0] :])
        except TooLargeError as error:
            self._refuse(error.status)
        except httptools.HttpParserError as error:
            why = error.__context__
            self._refuse(why.status if isinstance(why, TooLargeError) else HTTPStatus.BAD_REQUEST)
        self._hub.make_room()

    def eof_received(self) -> bool:
        """The client sends no more, and most probably does not listen any more."""
        self._keep_alive = False
        if self._asked is not None:
            self._asked.client.leave()
        return self._asked is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by either side."""
        self._leave()
        self._keep_alive = False
        if self._asked is not None:
            self._asked.client.leave()
        self._hub.unanswered -= len(self._body) + sum(len(r.body) for r in self._requests)
        self._body.clear()
        self._requests.clear()

    def pause_writing(self) -> None:
        """The client does not read its answers: it is not read either."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._transport.resume_reading()

    def close(self) -> None:
        """Close at once."""
        self._leave()
        self._transport.abort()

    # --- the parser's side --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._arrived = self._arrived or time.perf_counter()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        self._headers.append((name, value))
        self._headers_size += len(name) + len(value)
        if self._headers_size > self._hub.limits.head:
            raise TooLargeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if name == b"content-length" and int(value) > self._hub.limits.body:
            raise TooLargeError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._in_body = True
        if self._asked is None and (b"expect", b"100-continue") in self._headers:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body += body
        self._hub.unanswered += len(body)
        if len(self._body) > self._hub.limits.body:
            raise TooLargeError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_message_complete(self) -> None:
        """The request is whole; if another protocol is offered, the parser only says so."""
        parser = self._parser
        if parser.should_upgrade():
            return
        url = httptools.parse_url(self._url)
        request = Request(
            method=parser.get_method().decode("ascii"),
            path=unquote_to_bytes(url.path or b"/"),
            query=url.query or b"",
            version=parser.get_http_version(),
            headers=self._headers,
            body=bytes(self._body),
            arrived=self._arrived or time.perf_counter(),
            keep_alive=parser.should_keep_alive(),
            peer=self._peer,
        )
        self._begin()
        self._requests.append(request)
        if self._asked is None:
            self._ask()
        elif len(self._requests) > self._hub.limits.in_a_row or self._hub.is_full():
            self.close()

    # --- what happens in between --------------------------------------------------------------

    def _begin(self) -> None:
        """Nothing of the next request is there yet."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._headers_size = 0
        self._body = bytearray()
        self._head = 0
        self._in_body = False
        self._arrived = None

    def _stay_with_http1(self, rest: bytes) -> None:
        """Read on where a client offers another protocol, as Java's does: it need not be taken.

        The parser would read no body then, so a new one is told the same without the offer.
        """
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
            return
        head = [b"%s %s HTTP/1.1" % (method, self._url)]
        head += [name + b": " + value for name, value in self._headers if name not in OFFERS]
        arrived = self._arrived
        self._begin()
        self._parser = httptools.HttpRequestParser(self)
        self._arrived = arrived
        self.data_received(b"\r\n".join([*head, b"", rest]))

    def _check_head(self) -> None:
        if self._head > self._hub.limits.head:
            raise TooLargeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _leave(self) -> None:
        self._hub.idle.pop(self, None)
        self._hub.sending.pop(self, None)
        self._hub.answering.discard(self)

    def _wait(self, waiting: dict[Connection, tuple[float, float]], seconds: float) -> None:
        self._leave()
        now = time.monotonic()
        waiting[self] = now, now + seconds

    def _ask(self) -> None:
        self._leave()
        self._hub.answering.add(self)
        self._asked = request = self._requests.popleft()
        self._hub.dispatch(request, functools.partial(self._answer, request))

    def _answer(self, request: Request, status: str, headers: Headers, body: bytes) -> None:
        """Send the answer; then the next request, or the next wait."""
        hub = self._hub
        hub.unanswered -= len(request.body)
        self._asked = None
        if self._transport.is_closing():
            return
        self._keep_alive &= request.keep_alive and not hub.stopping
        self._write(status, headers, body)
        if not self._keep_alive:
            self._leave()
            self._transport.close()
        elif self._requests:
            self._ask()
        elif self._arrived is not None:
            self._wait(hub.sending, hub.limits.request_seconds)
        else:
            self._wait(hub.idle, hub.limits.idle_seconds)

    def _refuse(self, status: HTTPStatus) -> None:
        """Say that this is no request, unless an answer is under way; then read on for a moment.

        A connection that is closed with something unread takes the answer with it.
        """
        self._keep_alive = False
        if self._asked is not None:
            self.close()
            return
        self._write(f"{status.value} {status.phrase}", TEXT, status.phrase.encode())
        self._transport.write_eof()
        self._wait(self._hub.sending, REFUSED_SECONDS)

    def _write(self, status: str, headers: Headers, body: bytes) -> None:
        lines = [f"HTTP/1.1 {status}\r\n".encode(), b"Date: ", self._hub.date, b"\r\n"]
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers]
        if not any(name.lower() == "content-length" for name, _ in headers):
            lines.append(b"Content-Length: %d\r\n" % len(body))
        if not self._keep_alive:
            lines.append(b"Connection: close\r\n")
        self._transport.write(b"".join([*lines, b"\r\n", body]))
