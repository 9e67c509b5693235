"""HTTP connections that cost little until a whole request is there.

One event loop reads all of them; only a request that has arrived as a whole goes on, to the hub's
``dispatch``. So a client that sends slowly, or nothing, or reads slowly, takes a socket and a few
kilobytes. What each may take is bounded by `Limits`: when it is too much, or for too long, the
connection is closed; and where there are too many connections, the one that has been waited for
longest makes room for the new one.

The bytes are parsed by httptools, which is the parser of Node.js.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import httptools

from battlesnake_server.http.connection_table import BUSY, TEXT, Headers, Hub, Request

REFUSED_SECONDS = 1.0
"""How long a refused client is listened to, so that it gets to read why."""

TICK_SECONDS = 0.25


async def serve(
    hub: Hub,
    listeners: Iterable[socket.socket],
    stopped: asyncio.Event,
    *,
    drain_seconds: float,
    linger_seconds: float = 0.0,
    beat: Callable[[], bool] = lambda: True,
) -> None:
    """Answer on ``listeners`` until ``stopped``, or until `beat` returns false.

    Then what was asked is answered, for ``drain_seconds`` at most, and in the first
    ``linger_seconds`` also what may be on its way on open connections.
    """
    servers = [await _listen(hub, listener) for listener in listeners]
    while beat() and not stopped.is_set():
        hub.tick()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), TICK_SECONDS)
    for server in servers:
        server.close()
    hub.stopping = True
    began = time.monotonic()
    while (passed := time.monotonic() - began) < drain_seconds:
        on_their_way = (hub.idle or hub.sending) and passed < linger_seconds
        if not (hub.answering or hub.reading or on_their_way):
            break
        beat()
        hub.tick()
        await asyncio.sleep(0.02)
    hub.close()


async def _listen(hub: Hub, listener: socket.socket) -> asyncio.Server:
    # Up to 32 are accepted at once, before any is answered; the others wait in the kernel.
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(hub), sock=listener, backlog=32)
    listener.listen(2048)
    return server


class TooLargeError(Exception):
    """A request goes beyond the limits; ``status`` says which."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


OFFERS = (b"connection", b"upgrade", b"http2-settings")
"""Headers that offer another protocol."""


class Connection(asyncio.Protocol):
    """One connection: it is idle, sending a request, being answered, or reading its answer."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._asked: Request | None = None
        self._keep_alive = True
        self._arrived: float | None = None
        self._unsent = 0
        self._begin()

    # --- asyncio's side -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)
        self._peer = transport.get_extra_info("peername") or ("", 0)
        self._hub.wait(self, self._hub.idle, self._hub.limits.request_seconds)
        self._hub.make_room()

    def data_received(self, data: bytes) -> None:
        """Some bytes: of one request, of a part of one, or of several."""
        if not self._keep_alive:
            return
        if self._arrived is None:
            self._arrived = time.perf_counter()
            if self._asked is None:
                self._hub.wait(self, self._hub.sending, self._hub.limits.request_seconds)
        if not self._in_body:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
            if not self._in_body and self._head > self._hub.limits.head:
                raise TooLargeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except httptools.HttpParserUpgrade as upgrade:
            self._look_at_offer(data[upgrade.args[0] :])
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
        self._hub.leave(self)
        self._keep_alive = False
        if self._asked is not None:
            self._asked.client.leave()
        self._hub.unsent -= self._unsent
        self._hub.unanswered -= len(self._body) + sum(len(r.body) for r in self._requests)
        self._body.clear()
        self._requests.clear()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to: it is not read either."""
        self._transport.pause_reading()
        self._unsent = self._transport.get_write_buffer_size()
        self._hub.unsent += self._unsent

    def resume_writing(self) -> None:
        """The client has read all."""
        self._hub.unsent -= self._unsent
        self._unsent = 0
        self._transport.resume_reading()
        if self in self._hub.reading:
            self._go_on()

    def close(self) -> None:
        """Close at once."""
        self._hub.leave(self)
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
        request = self._request()
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

    def _request(self) -> Request:
        """What has arrived as a whole."""
        parser, url = self._parser, httptools.parse_url(self._url)
        return Request(
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

    def _look_at_offer(self, rest: bytes) -> None:
        """A client offers another protocol; ``rest`` is what came after the request's head."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
            return
        # Java's client offers one, which need not be taken. The parser would read no body then, so
        # a new one reads the same without the offer.
        head = [b"%s %s HTTP/1.1" % (method, self._url)]
        head += [name + b": " + value for name, value in self._headers if name not in OFFERS]
        arrived = self._arrived
        self._begin()
        self._parser = httptools.HttpRequestParser(self)
        self._arrived = arrived
        self.data_received(b"\r\n".join([*head, b"", rest]))

    def _ask(self) -> None:
        hub = self._hub
        hub.leave(self)
        hub.answering.add(self)
        self._asked = request = self._requests.popleft()
        answer = functools.partial(self._answer, request)
        if hub.unsent > hub.limits.unsent:
            answer(BUSY, TEXT, b"too much waits to be read; try again later")
        else:
            hub.dispatch(request, answer)

    def _answer(self, request: Request, status: str, headers: Headers, body: bytes) -> None:
        """Send the answer; once it is read the next request follows, or the next wait."""
        hub = self._hub
        hub.unanswered -= len(request.body)
        self._asked = None
        if self._transport.is_closing():
            return
        self._keep_alive &= request.keep_alive and not hub.stopping
        hub.wait(self, hub.reading, hub.limits.reading_seconds)
        self._write(status, headers, body, without_body=request.method == "HEAD")
        if not self._unsent:
            self._go_on()

    def _go_on(self) -> None:
        hub = self._hub
        if not self._keep_alive:
            hub.leave(self)
            self._transport.close()
        elif self._requests:
            self._ask()
        elif self._arrived is not None:
            hub.wait(self, hub.sending, hub.limits.request_seconds)
        else:
            hub.wait(self, hub.idle, hub.limits.idle_seconds)

    def _refuse(self, status: HTTPStatus) -> None:
        """Say that this is not a request, unless an answer is under way; then read on for a moment.

        A connection that is closed with something unread takes the answer with it.
        """
        self._keep_alive = False
        if self._asked is not None:
            self.close()
            return
        self._write(f"{status.value} {status.phrase}", TEXT, status.phrase.encode())
        self._transport.write_eof()
        self._hub.wait(self, self._hub.sending, REFUSED_SECONDS)

    def _write(
        self, status: str, headers: Headers, body: bytes, *, without_body: bool = False
    ) -> None:
        lines = [f"HTTP/1.1 {status}\r\n".encode(), f"Date: {formatdate(usegmt=True)}\r\n".encode()]
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers]
        bodiless = status.startswith(("204", "304"))
        if not bodiless and not any(name.lower() == "content-length" for name, _ in headers):
            lines.append(b"Content-Length: %d\r\n" % len(body))
        if not self._keep_alive:
            lines.append(b"Connection: close\r\n")
        self._transport.write(b"".join([*lines, b"\r\n", b"" if without_body else body]))
