"""Table of all connections of a process, with their limits.

The table also determines which connections are closed if a limit is exceeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

Headers = Sequence[tuple[str, str]]

TEXT_HEADERS: Headers = (("Content-Type", "text/plain; charset=utf-8"),)

STATUS_UNAVAILABLE, STATUS_TIMEOUT = "503 Service Unavailable", "408 Request Timeout"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections, requests and responses."""

    request_timeout_s: float = 5.0
    """Timeout of a request in seconds.

    The timeout also applies to the first byte on a new connection.
    """

    send_timeout_s: float = 60.0
    """Timeout of a response in seconds, from the first byte to the last byte."""

    keep_alive_timeout_s: float = 75.0
    """Timeout in seconds between two requests on one connection."""

    max_header_bytes: int = 1 << 14
    """Maximum size of the request line and the headers, in bytes."""

    max_body_bytes: int = 1 << 18
    """Maximum size of a request body in bytes.

    A request for the largest board in use has a fifth of this size.
    """

    max_pipelined: int = 16
    """Maximum number of pipelined requests per connection.

    Pipelined requests arrive before the response to an earlier request.
    """

    max_connections: int = 2000
    """Maximum number of connections.

    Above the maximum, the server closes the connection that has waited longest.
    """

    max_pending_body_bytes: int = 1 << 25
    """Maximum total size of all request bodies without a response, in bytes.

    The total includes partial bodies.
    """

    max_unsent_bytes: int = 1 << 28
    """Maximum total size of all responses that wait for slow clients, in bytes.

    Above the maximum, requests receive status 503.
    """


@dataclass(slots=True, eq=False)
class Request:
    """Complete HTTP request.

    Attributes:
        received_at: Arrival time of the first byte (`time.perf_counter`).
        server_port: Port on which the request arrived; 0 for a Unix socket.
        disconnected: Future that completes if the client disconnects before the response.
    """

    method: str
    path: bytes
    query: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    received_at: float
    keep_alive: bool
    client_address: tuple[str, int]
    server_port: int
    disconnected: Future[None] = field(default_factory=Future)


SendResponse = Callable[[str, Headers, bytes], None]
"""Callback that sends a response with a status, headers and a body.

A `RequestHandler` calls the callback once per request, in the event loop.
"""

RequestHandler = Callable[[Request, SendResponse], None]


class _Closable(Protocol):
    """Interface of the connections in a `ConnectionTable`."""

    def close(self) -> None:
        """Close the connection immediately."""


Deadlines = dict[_Closable, tuple[float, float]]
"""Start time and deadline of each connection (`time.monotonic`).

The connections are in order of the start time.
"""


class ConnectionTable:
    """All connections of a process, by state.

    Attributes:
        idle: Connections that wait for a request.
        receiving: Connections that have sent part of a request.
        responding: Connections that receive a response.
        handling: Connections whose response is being computed.
        pending_body_bytes: Total size of the request bodies in memory, in bytes.
        unsent_bytes: Total size of the responses in memory, in bytes.
    """

    def __init__(self, dispatch: RequestHandler, limits: Limits = Limits()) -> None:
        self.dispatch = dispatch
        self.limits = limits
        self.stopping = False
        self.pending_body_bytes = 0
        self.unsent_bytes = 0
        self.handling: set[_Closable] = set()
        self.idle: Deadlines = {}
        self.receiving: Deadlines = {}
        self.responding: Deadlines = {}

    def remove(self, connection: _Closable) -> None:
        """Remove ``connection`` from every deadline map and from ``handling``."""
        for waiting in (self.idle, self.receiving, self.responding):
            waiting.pop(connection, None)
        self.handling.discard(connection)

    def set_deadline(self, connection: _Closable, waiting: Deadlines, seconds: float) -> None:
        """Move ``connection`` to the deadline map ``waiting``.

        The deadline is ``seconds`` seconds from now.
        """
        self.remove(connection)
        now = time.monotonic()
        waiting[connection] = now, now + seconds

    def close_expired(self) -> None:
        """Close connections whose deadline has passed.

        Call this method several times per second.
        """
        now = time.monotonic()
        for waiting in (self.receiving, self.responding, self.idle):
            for connection in [
                connection for connection, (_, until) in waiting.items() if until <= now
            ]:
                connection.close()

    def evict(self) -> None:
        """Close the longest waiting connections until the limits are met."""
        waiting = self.idle, self.receiving, self.responding
        while sum(map(len, waiting)) + len(self.handling) > self.limits.max_connections:
            longest = [next(iter(connections.items())) for connections in waiting if connections]
            if not longest:
                return
            min(longest, key=lambda entry: entry[1])[0].close()
        while self.is_full() and self.receiving:
            next(iter(self.receiving)).close()

    def is_full(self) -> bool:
        """Return whether the request bodies in memory exceed ``max_pending_body_bytes``."""
        return self.pending_body_bytes > self.limits.max_pending_body_bytes

    def close(self) -> None:
        """Close all connections."""
        for connection in [*self.idle, *self.receiving, *self.responding, *self.handling]:
            connection.close()
