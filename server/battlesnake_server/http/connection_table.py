"""All connections of a process, what they may take, and which of them makes room."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Headers = Sequence[tuple[str, str]]

TEXT: Headers = (("Content-Type", "text/plain; charset=utf-8"),)

BUSY, GONE = "503 Service Unavailable", "408 Request Timeout"


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may take: seconds, bytes and their number."""

    request_seconds: float = 5.0
    """From the first byte of a request to its last, and from a connection to its first byte."""

    reading_seconds: float = 60.0
    """From the first byte of an answer to its last, however slowly it is read."""

    idle_seconds: float = 75.0
    """Between two requests on one connection."""

    head: int = 1 << 14
    """Bytes of a request's first line and headers."""

    body: int = 1 << 18
    """Bytes of a request's body; the largest board that is played or drawn needs a fifth."""

    in_a_row: int = 16
    """Requests sent on one connection before the first of them was answered."""

    connections: int = 2000
    """Open at once. Above it the one that has waited longest is closed."""

    unanswered: int = 1 << 25
    """Bytes of all bodies that have arrived, in part or as a whole, and are not answered."""

    unsent: int = 1 << 28
    """Bytes of all answers that wait for slow readers; above it requests get status 503."""


class Client:
    """The other side of one request: it leaves at most once; any thread may ask whether it has."""

    __slots__ = ("_tell", "gone")

    def __init__(self) -> None:
        self.gone = False
        self._tell: Callable[[], object] | None = None

    def leave(self) -> None:
        """The connection was closed."""
        self.gone = True
        if self._tell is not None:
            self._tell()

    def on_leaving(self, tell: Callable[[], object]) -> None:
        """Have ``tell`` called when the client leaves, at once where it has."""
        self._tell = tell
        if self.gone:
            tell()


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


class Peer(Protocol):
    """The other side of a connection."""

    def close(self) -> None:
        """Close at once."""


Waiting = dict[Peer, tuple[float, float]]
"""Since when and until when (`time.monotonic`) peers are waited for, in the order they began."""


class Hub:
    """All connections of a process, by what they do.

    ``idle`` ones wait for a request, ``sending`` ones for the rest of it, ``reading`` ones read
    their answer; ``answering`` are those whose answer is being made.
    ``unanswered`` counts the bytes of bodies that are held in memory, ``unsent`` those of answers.
    """

    def __init__(self, dispatch: Dispatch, limits: Limits = Limits()) -> None:
        self.dispatch = dispatch
        self.limits = limits
        self.stopping = False
        self.unanswered = 0
        self.unsent = 0
        self.answering: set[Peer] = set()
        self.idle: Waiting = {}
        self.sending: Waiting = {}
        self.reading: Waiting = {}

    def leave(self, peer: Peer) -> None:
        """Whatever ``peer`` did, it does it no more."""
        for waiting in (self.idle, self.sending, self.reading):
            waiting.pop(peer, None)
        self.answering.discard(peer)

    def wait(self, peer: Peer, waiting: Waiting, seconds: float) -> None:
        """From now on ``peer`` is one of ``waiting``, for so long."""
        self.leave(peer)
        now = time.monotonic()
        waiting[peer] = now, now + seconds

    def tick(self) -> None:
        """Close whatever has taken too long; to be called a few times a second."""
        now = time.monotonic()
        for waiting in (self.sending, self.reading, self.idle):
            for peer in [peer for peer, (_, until) in waiting.items() if until <= now]:
                peer.close()

    def make_room(self) -> None:
        """Close those that have been waited for longest, until the limits are kept."""
        waiting = self.idle, self.sending, self.reading
        while sum(map(len, waiting)) + len(self.answering) > self.limits.connections:
            longest = [next(iter(peers.items())) for peers in waiting if peers]
            if not longest:
                return
            min(longest, key=lambda entry: entry[1])[0].close()
        while self.is_full() and self.sending:
            next(iter(self.sending)).close()

    def is_full(self) -> bool:
        """Whether there is no room for the body of another request."""
        return self.unanswered > self.limits.unanswered

    def close(self) -> None:
        """Close all connections."""
        for peer in [*self.idle, *self.sending, *self.reading, *self.answering]:
            peer.close()
