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

from battlesnake_server.http.connection_table import (
    STATUS_UNAVAILABLE,
    TEXT_HEADERS,
    ConnectionTable,
    Headers,
    Request,
)

_REJECTED_LINGER_S = 1.0
"""How long a refused client is listened to, so that it gets to read why."""

TICK_INTERVAL_S = 0.25


async def serve(
    hub: ConnectionTable,
    listeners: Iterable[socket.socket],
    stopped: asyncio.Event,
    *,
    drain_timeout_s: float,
    linger_s: float = 0.0,
    heartbeat: Callable[[], bool] = lambda: True,
) -> None:
    """Answer on ``listeners`` until ``stopped``, or until `heartbeat` returns false.

    Then what was asked is answered, for ``drain_timeout_s`` at most, and in the first
    ``linger_s`` also what may be on its way on open connections.
    """
    servers = [await _listen(hub, listener) for listener in listeners]
    while heartbeat() and not stopped.is_set():
        hub.close_expired()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), TICK_INTERVAL_S)
    for server in servers:
        server.close()
    hub.stopping = True
    began = time.monotonic()
    while (passed := time.monotonic() - began) < drain_timeout_s:
        on_their_way = (hub.idle or hub.receiving) and passed < linger_s
        if not (hub.handling or hub.responding or on_their_way):
            break
        heartbeat()
        hub.close_expired()
        await asyncio.sleep(0.02)
    hub.close()


async def _listen(hub: ConnectionTable, listener: socket.socket) -> asyncio.Server:
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


_UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")
"""Headers that offer another protocol."""


class Connection(asyncio.Protocol):
    """One connection: it is idle, sending a request, being answered, or reading its answer."""

    def __init__(self, hub: ConnectionTable) -> None:
        self._hub = hub
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._current_request: Request | None = None
        self._keep_alive = True
        self._request_started_at: float | None = None
        self._unsent = 0
        self._begin()

    # --- asyncio's side -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)
        self._peer = transport.get_extra_info("peername") or ("", 0)
        self._hub.set_deadline(self, self._hub.idle, self._hub.limits.request_timeout_s)
        self._hub.evict()

    def data_received(self, data: bytes) -> None:
        """Some bytes: of one request, of a part of one, or of several."""
        if not self._keep_alive:
            return
        if self._request_started_at is None:
            self._request_started_at = time.perf_counter()
            if self._current_request is None:
                self._hub.set_deadline(
                    self, self._hub.receiving, self._hub.limits.request_timeout_s
                )
        if not self._in_body:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
            if not self._in_body and self._head > self._hub.limits.max_header_bytes:
                raise TooLargeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except TooLargeError as error:
            self._reject(error.status)
        except httptools.HttpParserError as error:
            why = error.__context__
            self._reject(why.status if isinstance(why, TooLargeError) else HTTPStatus.BAD_REQUEST)
        self._hub.evict()

    def eof_received(self) -> bool:
        """The client sends no more, and most probably does not listen any more."""
        self._keep_alive = False
        if self._current_request is not None:
            self._current_request.client.mark_disconnected()
        return self._current_request is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by either side."""
        self._hub.remove(self)
        self._keep_alive = False
        if self._current_request is not None:
            self._current_request.client.mark_disconnected()
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
        if self in self._hub.responding:
            self._after_response()

    def close(self) -> None:
        """Close at once."""
        self._hub.remove(self)
        self._transport.abort()

    # --- the parser's side --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._request_started_at = self._request_started_at or time.perf_counter()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        self._headers.append((name, value))
        self._headers_size += len(name) + len(value)
        if self._headers_size > self._hub.limits.max_header_bytes:
            raise TooLargeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if name == b"content-length" and int(value) > self._hub.limits.max_body_bytes:
            raise TooLargeError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._in_body = True
        if self._current_request is None and (b"expect", b"100-continue") in self._headers:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body += body
        self._hub.unanswered += len(body)
        if len(self._body) > self._hub.limits.max_body_bytes:
            raise TooLargeError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_message_complete(self) -> None:
        """The request is whole; if another protocol is offered, the parser only says so."""
        parser = self._parser
        if parser.should_upgrade():
            return
        request = self._request()
        self._begin()
        self._requests.append(request)
        if self._current_request is None:
            self._handle_next()
        elif len(self._requests) > self._hub.limits.max_pipelined or self._hub.is_full():
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
        self._request_started_at = None

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
            received_at=self._request_started_at or time.perf_counter(),
            keep_alive=parser.should_keep_alive(),
            peer=self._peer,
        )

    def _ignore_upgrade(self, rest: bytes) -> None:
        """A client offers another protocol; ``rest`` is what came after the request's head."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._reject(HTTPStatus.METHOD_NOT_ALLOWED)
            return
        # Java's client offers one, which need not be taken. The parser would read no body then, so
        # a new one reads the same without the offer.
        head = [b"%s %s HTTP/1.1" % (method, self._url)]
        head += [
            name + b": " + value for name, value in self._headers if name not in _UPGRADE_HEADERS
        ]
        arrived = self._request_started_at
        self._begin()
        self._parser = httptools.HttpRequestParser(self)
        self._request_started_at = arrived
        self.data_received(b"\r\n".join([*head, b"", rest]))

    def _handle_next(self) -> None:
        hub = self._hub
        hub.remove(self)
        hub.handling.add(self)
        self._current_request = request = self._requests.popleft()
        answer = functools.partial(self._send_response, request)
        if hub.unsent > hub.limits.max_unsent_bytes:
            answer(STATUS_UNAVAILABLE, TEXT_HEADERS, b"too much waits to be read; try again later")
        else:
            hub.dispatch(request, answer)

    def _send_response(self, request: Request, status: str, headers: Headers, body: bytes) -> None:
        """Send the answer; once it is read the next request follows, or the next wait."""
        hub = self._hub
        hub.unanswered -= len(request.body)
        self._current_request = None
        if self._transport.is_closing():
            return
        self._keep_alive &= request.keep_alive and not hub.stopping
        hub.set_deadline(self, hub.responding, hub.limits.send_timeout_s)
        self._write(status, headers, body, without_body=request.method == "HEAD")
        if not self._unsent:
            self._after_response()

    def _after_response(self) -> None:
        hub = self._hub
        if not self._keep_alive:
            hub.remove(self)
            self._transport.close()
        elif self._requests:
            self._handle_next()
        elif self._request_started_at is not None:
            hub.set_deadline(self, hub.receiving, hub.limits.request_timeout_s)
        else:
            hub.set_deadline(self, hub.idle, hub.limits.keep_alive_timeout_s)

    def _reject(self, status: HTTPStatus) -> None:
        """Say that this is not a request, unless an answer is under way; then read on for a moment.

        A connection that is closed with something unread takes the answer with it.
        """
        self._keep_alive = False
        if self._current_request is not None:
            self.close()
            return
        self._write(f"{status.value} {status.phrase}", TEXT_HEADERS, status.phrase.encode())
        self._transport.write_eof()
        self._hub.set_deadline(self, self._hub.receiving, _REJECTED_LINGER_S)

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
