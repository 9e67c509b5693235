"""All connections of a process, what they may take, and which of them makes room."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Headers = Sequence[tuple[str, str]]

TEXT_HEADERS: Headers = (("Content-Type", "text/plain; charset=utf-8"),)

STATUS_UNAVAILABLE, STATUS_TIMEOUT = "503 Service Unavailable", "408 Request Timeout"


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may take: seconds, bytes and their number."""

    request_timeout_s: float = 5.0
    """From the first byte of a request to its last, and from a connection to its first byte."""

    send_timeout_s: float = 60.0
    """From the first byte of an answer to its last, however slowly it is read."""

    keep_alive_timeout_s: float = 75.0
    """Between two requests on one connection."""

    max_header_bytes: int = 1 << 14
    """Bytes of a request's first line and headers."""

    max_body_bytes: int = 1 << 18
    """Bytes of a request's body; the largest board that is played or drawn needs a fifth."""

    max_pipelined: int = 16
    """Requests sent on one connection before the first of them was answered."""

    max_connections: int = 2000
    """Open at once. Above it the one that has waited longest is closed."""

    max_pending_body_bytes: int = 1 << 25
    """Bytes of all bodies that have arrived, in part or as a whole, and are not answered."""

    max_unsent_bytes: int = 1 << 28
    """Bytes of all answers that wait for slow readers; above it requests get status 503."""


class ClientState:
    """The other side of one request: it leaves at most once; any thread may ask whether it has."""

    __slots__ = ("_tell", "disconnected")

    def __init__(self) -> None:
        self.disconnected = False
        self._tell: Callable[[], object] | None = None

    def mark_disconnected(self) -> None:
        """The connection was closed."""
        self.disconnected = True
        if self._tell is not None:
            self._tell()

    def on_disconnect(self, tell: Callable[[], object]) -> None:
        """Have ``tell`` called when the client leaves, at once where it has."""
        self._tell = tell
        if self.disconnected:
            tell()


@dataclass(slots=True, eq=False)
class Request:
    """One whole request; ``received_at`` (`time.perf_counter`) is when its first byte was read."""

    method: str
    path: bytes
    query: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    received_at: float
    keep_alive: bool
    peer: tuple[str, int]
    client: ClientState = field(default_factory=ClientState)


SendResponse = Callable[[str, Headers, bytes], None]
"""What `RequestHandler` calls once, in the event loop: with status, headers and body of the answer."""

RequestHandler = Callable[[Request, SendResponse], None]


class Closable(Protocol):
    """The other side of a connection."""

    def close(self) -> None:
        """Close at once."""


Deadlines = dict[Closable, tuple[float, float]]
"""Since when and until when (`time.monotonic`) peers are waited for, in the order they began."""


class ConnectionTable:
    """All connections of a process, by what they do.

    ``idle`` ones wait for a request, ``receiving`` ones for the rest of it, ``responding`` ones read
    their answer; ``handling`` are those whose answer is being made.
    ``max_pending_body_bytes`` counts the bytes of bodies that are held in memory, ``max_unsent_bytes`` those of answers.
    """

    def __init__(self, dispatch: RequestHandler, limits: Limits = Limits()) -> None:
        self.dispatch = dispatch
        self.limits = limits
        self.stopping = False
        self.unanswered = 0
        self.unsent = 0
        self.handling: set[Closable] = set()
        self.idle: Deadlines = {}
        self.receiving: Deadlines = {}
        self.responding: Deadlines = {}

    def remove(self, peer: Closable) -> None:
        """Whatever ``peer`` did, it does it no more."""
        for waiting in (self.idle, self.receiving, self.responding):
            waiting.pop(peer, None)
        self.handling.discard(peer)

    def set_deadline(self, peer: Closable, waiting: Deadlines, seconds: float) -> None:
        """From now on ``peer`` is one of ``waiting``, for so long."""
        self.remove(peer)
        now = time.monotonic()
        waiting[peer] = now, now + seconds

    def close_expired(self) -> None:
        """Close whatever has taken too long; to be called a few times a second."""
        now = time.monotonic()
        for waiting in (self.receiving, self.responding, self.idle):
            for peer in [peer for peer, (_, until) in waiting.items() if until <= now]:
                peer.close()

    def evict(self) -> None:
        """Close those that have been waited for longest, until the limits are kept."""
        waiting = self.idle, self.receiving, self.responding
        while sum(map(len, waiting)) + len(self.handling) > self.limits.max_connections:
            longest = [next(iter(peers.items())) for peers in waiting if peers]
            if not longest:
                return
            min(longest, key=lambda entry: entry[1])[0].close()
        while self.is_full() and self.receiving:
            next(iter(self.receiving)).close()

    def is_full(self) -> bool:
        """Whether there is no room for the body of another request."""
        return self.unanswered > self.limits.max_pending_body_bytes

    def close(self) -> None:
        """Close all connections."""
        for peer in [*self.idle, *self.receiving, *self.responding, *self.handling]:
            peer.close()
