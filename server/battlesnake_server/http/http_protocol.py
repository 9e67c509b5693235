"""HTTP connections that use few resources until a complete request has arrived.

One event loop reads all connections and passes only complete requests to the connection table's
``dispatch``. A slow or silent client therefore occupies only a socket and a few kilobytes. `Limits`
bounds the size and the duration of every client action. A connection that exceeds a limit is
closed. If there are too many connections, a new connection replaces the connection that has waited
longest.

The parser of the requests is httptools, a wrapper of the parser of Node.js.
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

_LINGER_S = 1.0
"""Duration in seconds for which the server reads from a client after the last response.

If the server closed the connection with unread bytes, the client could lose the response (RFC 9112,
section 9.6).
"""

TICK_INTERVAL_S = 0.25


async def serve(
    table: ConnectionTable,
    listeners: Iterable[socket.socket],
    stopped: asyncio.Event,
    *,
    drain_timeout_s: float,
    linger_s: float = 0.0,
    heartbeat: Callable[[], bool] = lambda: True,
) -> None:
    """Serve on ``listeners`` until ``stopped`` is set or ``heartbeat`` returns False.

    After the stop, the server finishes the requests that have arrived.

    Args:
        table: Table of the connections.
        listeners: Listening sockets.
        stopped: Event that stops the server.
        drain_timeout_s: Timeout for pending requests after the stop, in seconds.
        linger_s: Duration after the stop in seconds in which the server accepts requests on open
            connections.
        heartbeat: Callback, called every `TICK_INTERVAL_S` seconds; False stops the server.
    """
    servers = [await _start_listening(table, listener) for listener in listeners]
    while heartbeat() and not stopped.is_set():
        table.close_expired()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), TICK_INTERVAL_S)
    for server in servers:
        server.close()
    table.stopping = True
    began = time.monotonic()
    while (passed := time.monotonic() - began) < drain_timeout_s:
        may_arrive = (table.idle or table.receiving) and passed < linger_s
        if not (table.handling or table.responding or may_arrive):
            break
        heartbeat()
        table.close_expired()
        await asyncio.sleep(0.02)
    table.close()


async def _start_listening(table: ConnectionTable, listener: socket.socket) -> asyncio.Server:
    """Start a server that accepts connections on ``listener``."""
    # asyncio accepts up to 32 connections before it handles the first connection. All other
    # connections wait in the kernel.
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(table), sock=listener, backlog=32)
    listener.listen(2048)
    return server


class _RejectedError(Exception):
    """Error raised if the connection rejects a request.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


_UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")
"""Headers that offer an upgrade to another protocol."""


class _Connection(asyncio.Protocol):
    """HTTP connection in one of the states idle, receiving, handling and responding."""

    def __init__(self, table: ConnectionTable) -> None:
        self._table = table
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._current_request: Request | None = None
        self._keep_alive = True
        self._has_last_request = False
        self._half_closed = False
        self._request_started_at: float | None = None
        self._unsent_bytes = 0
        self._reset()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)
        self._client_address = transport.get_extra_info("peername") or ("", 0)
        address = transport.get_extra_info("sockname")
        self._server_port = address[1] if isinstance(address, tuple) else 0
        self._table.set_deadline(self, self._table.idle, self._table.limits.request_timeout_s)
        self._table.evict()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, which may contain a part of a request or several requests."""
        if not self._keep_alive or self._has_last_request:
            return
        if self._request_started_at is None:
            self._request_started_at = time.perf_counter()
            if self._current_request is None:
                self._table.set_deadline(
                    self, self._table.receiving, self._table.limits.request_timeout_s
                )
        if not self._in_body:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if not self._in_body and self._head_bytes > self._table.limits.max_header_bytes:
                raise _RejectedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except _RejectedError as error:
            self._reject(error.status)
        except httptools.HttpParserError as error:
            why = error.__context__
            self._reject(why.status if isinstance(why, _RejectedError) else HTTPStatus.BAD_REQUEST)
        self._table.evict()

    def eof_received(self) -> bool:
        """Handle the end of the client's data; return whether to keep the connection open.

        The client may still read the response (RFC 9112, section 9.6).
        """
        self._half_closed = True
        return self._current_request is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the memory of a closed connection."""
        self._table.remove(self)
        self._keep_alive = False
        if self._current_request is not None:
            self._current_request.disconnected.set_result(None)
        self._table.unsent_bytes -= self._unsent_bytes
        self._drop_bodies()

    def _drop_bodies(self) -> None:
        """Release the memory of the bodies that no thread handles."""
        self._table.pending_body_bytes -= len(self._body) + sum(len(r.body) for r in self._requests)
        self._body.clear()
        self._requests.clear()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its responses fast enough."""
        self._transport.pause_reading()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._table.unsent_bytes += self._unsent_bytes

    def resume_writing(self) -> None:
        """Resume reading after the client has read all responses."""
        self._table.unsent_bytes -= self._unsent_bytes
        self._unsent_bytes = 0
        self._transport.resume_reading()
        if self in self._table.responding:
            self._after_response()

    def close(self) -> None:
        """Close the connection immediately."""
        self._table.remove(self)
        self._drop_bodies()
        self._transport.abort()

    def on_message_begin(self) -> None:
        """Record the start of a request."""
        self._request_started_at = self._request_started_at or time.perf_counter()

    def on_url(self, url: bytes) -> None:
        """Append a part of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store one header and check the size of the headers and of the body."""
        name, value = name.lower(), value.rstrip(b" \t")
        self._headers.append((name, value))
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self._table.limits.max_header_bytes:
            raise _RejectedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if name == b"content-length" and int(value) > self._table.limits.max_body_bytes:
            raise _RejectedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Send ``100 Continue`` to an HTTP/1.1 client that expects this status."""
        self._in_body = True
        self._check_transfer_codings()
        expects = any(n == b"expect" and v.lower() == b"100-continue" for n, v in self._headers)
        if expects and self._current_request is None and self._parser.get_http_version() == "1.1":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_transfer_codings(self) -> None:
        """Reject transfer codings other than ``chunked`` (RFC 9112, sections 6.1 and 6.3)."""
        values = [value.lower() for name, value in self._headers if name == b"transfer-encoding"]
        codings = [coding.strip(b" \t") for coding in b",".join(values).split(b",")]
        if values and codings != [b"chunked"]:
            raise _RejectedError(
                HTTPStatus.NOT_IMPLEMENTED if codings[-1] == b"chunked" else HTTPStatus.BAD_REQUEST
            )

    def on_body(self, body: bytes) -> None:
        """Append a part of the body and check the size of the body."""
        self._body += body
        self._table.pending_body_bytes += len(body)
        if len(self._body) > self._table.limits.max_body_bytes:
            raise _RejectedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_message_complete(self) -> None:
        """Queue a complete request.

        `_ignore_upgrade` handles requests that offer an upgrade.
        """
        parser = self._parser
        if parser.should_upgrade():
            return
        request = self._build_request()
        self._reset()
        self._requests.append(request)
        self._has_last_request = not request.keep_alive
        if self._current_request is None:
            self._handle_next()
        elif len(self._requests) > self._table.limits.max_pipelined or self._table.is_full():
            self.close()

    def _reset(self) -> None:
        """Reset the state for the next request."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0
        self._body = bytearray()
        self._head_bytes = 0
        self._in_body = False
        self._request_started_at = None

    def _build_request(self) -> Request:
        """Build the request from the parsed parts."""
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
            client_address=self._client_address,
            server_port=self._server_port,
        )

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Parse a request again without the offer to upgrade.

        Args:
            rest: Bytes after the headers.
        """
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._reject(HTTPStatus.METHOD_NOT_ALLOWED)
            return
        # Java's HTTP client offers an upgrade, which a server may ignore. The parser would skip the
        # body. Therefore, a new parser reads the same request without the offer.
        head = [b"%s %s HTTP/1.1" % (method, self._url)]
        head += [
            name + b": " + value for name, value in self._headers if name not in _UPGRADE_HEADERS
        ]
        if not self._parser.should_keep_alive():
            head.append(b"connection: close")
        arrived = self._request_started_at
        self._reset()
        self._parser = httptools.HttpRequestParser(self)
        self._request_started_at = arrived
        self.data_received(b"\r\n".join([*head, b"", rest]))

    def _handle_next(self) -> None:
        """Dispatch the oldest queued request."""
        table = self._table
        table.remove(self)
        table.handling.add(self)
        self._current_request = request = self._requests.popleft()
        answer = functools.partial(self._send_response, request)
        if table.unsent_bytes > table.limits.max_unsent_bytes:
            answer(
                STATUS_UNAVAILABLE,
                TEXT_HEADERS,
                b"too many responses wait for slow clients; try again later",
            )
        else:
            table.dispatch(request, answer)

    def _send_response(self, request: Request, status: str, headers: Headers, body: bytes) -> None:
        """Send the response.

        The next request is handled after the client has received the response.
        """
        table = self._table
        table.pending_body_bytes -= len(request.body)
        self._current_request = None
        if self._transport.is_closing():
            return
        is_last = self._half_closed and not self._requests
        self._keep_alive &= request.keep_alive and not table.stopping and not is_last
        if self._keep_alive and request.version == "1.0":
            headers = (*headers, ("Connection", "keep-alive"))
        table.set_deadline(self, table.responding, table.limits.send_timeout_s)
        self._write_response(status, headers, body, without_body=request.method == "HEAD")
        if not self._unsent_bytes:
            self._after_response()

    def _after_response(self) -> None:
        """Close the connection, or continue with the next request."""
        table = self._table
        if not self._keep_alive:
            self._close_after_reading()
        elif self._requests:
            self._handle_next()
        elif self._request_started_at is not None:
            table.set_deadline(self, table.receiving, table.limits.request_timeout_s)
        else:
            table.set_deadline(self, table.idle, table.limits.keep_alive_timeout_s)

    def _reject(self, status: HTTPStatus) -> None:
        """Send an error status, and close the connection.

        The status is not sent if a response is in progress. Bytes after a request with
        ``Connection: close`` are ignored.
        """
        if self._has_last_request:
            return
        self._keep_alive = False
        if self._current_request is not None:
            self.close()
            return
        headers = [*TEXT_HEADERS]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD, POST"))
        self._write_response(f"{status.value} {status.phrase}", headers, status.phrase.encode())
        self._close_after_reading()

    def _close_after_reading(self) -> None:
        """Close the connection after the client has closed its side, or after `_LINGER_S`."""
        if self._half_closed:
            self._table.remove(self)
            self._transport.close()
            return
        self._transport.write_eof()
        self._table.set_deadline(self, self._table.receiving, _LINGER_S)

    def _write_response(
        self, status: str, headers: Headers, body: bytes, *, without_body: bool = False
    ) -> None:
        """Write the status line, the headers and the body."""
        lines = [f"HTTP/1.1 {status}\r\n".encode(), f"Date: {formatdate(usegmt=True)}\r\n".encode()]
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers]
        bodiless = status.startswith(("204", "304"))
        if not bodiless and not any(name.lower() == "content-length" for name, _ in headers):
            lines.append(b"Content-Length: %d\r\n" % len(body))
        if not self._keep_alive:
            lines.append(b"Connection: close\r\n")
        self._transport.write(b"".join([*lines, b"\r\n", b"" if without_body else body]))
