"""What the live snake remembers of every game: one session for each game id and snake id."""

from __future__ import annotations

import hashlib
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.snakes import Decision, Factory, Strategy
from battlesnake_server.live.time_budget import RoundTrip

Key = tuple[str, str]
"""Game id and snake id: one process may play several snakes of the same game."""

IDLE_TIMEOUT_S = 600.0
"""A game that has not been heard of for this long is forgotten; not every engine sends /end."""

_MAX_SESSIONS = 10_000
"""More than these are never kept: the one that has been idle longest goes first. Each takes a few
kilobytes, whatever the ids and boards of its game; the largest, a policy's, takes 6."""


@dataclass(slots=True)
class Session:
    """One snake in one game.

    A strategy object plays one move at a time: ``strategy_lock`` is held by the thread that asks it,
    ``pending_move`` is its current work in a thread of its own, None where there is none.
    ``failed`` is whether the strategy has raised an exception in this game, ``warned_of_bad_fields`` whether
    something in its requests could not be read.
    """

    strategy: Strategy
    name: str = ""
    eliminations: EliminationTracker = field(default_factory=EliminationTracker)
    round_trip: RoundTrip = field(default_factory=RoundTrip)
    pending_move: Future[Decision] | None = None
    strategy_lock: threading.Lock = field(default_factory=threading.Lock)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_request_at: float = 0.0
    failed: bool = False
    warned_of_bad_fields: bool = False


class Sessions:
    """All sessions of a process, safe to use from many threads.

    ``make`` builds the strategy of a new session from a seed, which follows from the ids: asked
    again about the same game, a snake plays the same moves. ``clock`` gives seconds.
    """

    def __init__(self, make: Factory, clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        # Ordered by when they were last heard of, so that the idle ones come first.
        self._sessions: OrderedDict[tuple[bytes, bytes], Session] = OrderedDict()

    def get(self, key: Key) -> Session:
        """The session of ``key``, a new one where there is none."""
        digest = _digest(key)
        with self._lock:
            self._forget_idle()
            session = self._sessions.get(digest)
            if session is None:
                session = self._sessions[digest] = Session(
                    self._make(_seed(key)), session_name(key)
                )
                if len(self._sessions) > _MAX_SESSIONS:
                    self._sessions.popitem(last=False)
            session.last_request_at = self._clock()
            self._sessions.move_to_end(digest)
            return session

    def drop(self, key: Key) -> None:
        """Forget ``key``, known or not."""
        with self._lock:
            self._sessions.pop(_digest(key), None)

    def count_games(self) -> int:
        """How many different games are being played."""
        with self._lock:
            self._forget_idle()
            return len({game for game, _ in self._sessions})

    def _forget_idle(self) -> None:
        oldest = self._clock() - IDLE_TIMEOUT_S
        while self._sessions:
            digest, session = next(iter(self._sessions.items()))
            if session.last_request_at >= oldest:
                return
            del self._sessions[digest]


def session_name(key: Key) -> str:
    """How a session is called in logs: its ids, cut where they are long.

    >>> shown(("a" * 1000, "b"))[:20]
    "game 'aaaaaaaaaaaaaa"
    """
    game, snake = key
    return f"game {json_fields.format_value(game)}, snake {json_fields.format_value(snake)}"


def _digest(key: Key) -> tuple[bytes, bytes]:
    """Ids are as long as who sends them likes; what is kept of them is not."""
    game, snake = (hashlib.sha256(part.encode("utf-8", "surrogatepass")) for part in key)
    return game.digest(), snake.digest()


def _seed(key: Key) -> int:
    return zlib.crc32(repr(key).encode())
