"""Sessions: state of the live snake for each pair of game id and snake id."""

from __future__ import annotations

import functools
import hashlib
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.snakes import Decision, Strategy, StrategyFactory
from battlesnake_server.live.time_budget import RoundTripEstimate

Key = tuple[str, str]
"""Game id and snake id.

One process may play several snakes of the same game.
"""

SESSION_IDLE_TIMEOUT_S = 600.0
"""Idle time in seconds after which a session is deleted.

Some engines never send ``/end``.
"""

_MAX_SESSIONS = 10_000
"""Maximum number of sessions.

Above the maximum, the session that has been idle longest is deleted. A session uses a few
kilobytes, regardless of the sizes of ids and boards. The session of a policy uses 6 kB, or 25 kB
with a recurrent network. In a game with limited view, the session of a search uses up to 60 kB
(`search.beliefs`).
"""


@dataclass(slots=True)
class Session:
    """State of one snake in one game.

    Attributes:
        strategy: Strategy, which plays one move at a time.
        name: Name in the log.
        build: Function that builds the strategy, or None after the build. The duration of
            the build in user code is unlimited.
        pending_move: Move that a thread is computing, or None.
        strategy_lock: Lock of the request thread that runs the strategy.
        build_lock: Lock of the thread that builds the strategy.
        lock: Lock that protects the other attributes.
        last_request_at: Time of the last request in seconds, by the clock of `Sessions`.
        failed: Whether the strategy has raised an exception in this game.
        warned_of_bad_fields: Whether an unreadable field of a request has been logged.
        assumption: Logged assumption about the view radius, or "".
    """

    strategy: Strategy
    name: str = ""
    build: Callable[[], Strategy] | None = None
    eliminations: EliminationTracker = field(default_factory=EliminationTracker)
    round_trip: RoundTripEstimate = field(default_factory=RoundTripEstimate)
    pending_move: Future[Decision] | None = None
    strategy_lock: threading.Lock = field(default_factory=threading.Lock)
    build_lock: threading.Lock = field(default_factory=threading.Lock)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_request_at: float = 0.0
    failed: bool = False
    warned_of_bad_fields: bool = False
    assumption: str = ""

    def ensure_built(self) -> None:
        """Build the strategy on the first call.

        All exceptions of user code propagate.
        """
        with self.build_lock:
            if self.build is not None:
                self.strategy = self.build()
                self.build = None


class Sessions:
    """All sessions of a process.

    All public methods are thread-safe.

    Args:
        factory: Function that builds the strategy of a new session from a seed. The seed depends
            only on the ids, so a repeated game has the same moves.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self, factory: StrategyFactory, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._factory = factory
        self._clock = clock
        self._lock = threading.Lock()
        # The sessions are in order of their last request, so idle sessions come first.
        self._sessions: OrderedDict[tuple[bytes, bytes], Session] = OrderedDict()

    def get_or_create(self, key: Key) -> Session:
        """Return the session of ``key``, or create a session whose strategy is not built."""
        digest = _hash_ids(key)
        with self._lock:
            self._delete_idle_sessions()
            session = self._sessions.get(digest)
            if session is None:
                session = self._sessions[digest] = Session(
                    _unbuilt_strategy,
                    _session_name(key),
                    functools.partial(self._factory, _session_seed(key)),
                )
                if len(self._sessions) > _MAX_SESSIONS:
                    self._sessions.popitem(last=False)
            session.last_request_at = self._clock()
            self._sessions.move_to_end(digest)
            return session

    def delete(self, key: Key) -> None:
        """Delete the session of ``key`` if it exists."""
        with self._lock:
            self._sessions.pop(_hash_ids(key), None)

    def count_games(self) -> int:
        """Return the number of active games."""
        with self._lock:
            self._delete_idle_sessions()
            return len({game for game, _ in self._sessions})

    def _delete_idle_sessions(self) -> None:
        """Delete sessions without a request for `SESSION_IDLE_TIMEOUT_S`."""
        oldest = self._clock() - SESSION_IDLE_TIMEOUT_S
        while self._sessions:
            digest, session = next(iter(self._sessions.items()))
            if session.last_request_at >= oldest:
                return
            del self._sessions[digest]


def _unbuilt_strategy(board: Board, seconds: float | None = None) -> Decision:
    """Raise RuntimeError, as a placeholder until the strategy is built."""
    raise RuntimeError("the strategy is not built")


def _session_name(key: Key) -> str:
    """Return the game id and the snake id for the log, shortened if necessary.

    >>> _session_name(("a" * 1000, "b"))[:20]
    "game 'aaaaaaaaaaaaaa"
    """
    game, snake = key
    return f"game {json_fields.format_value(game)}, snake {json_fields.format_value(snake)}"


def _hash_ids(key: Key) -> tuple[bytes, bytes]:
    """Return 32-byte hashes of the two ids, which may be arbitrarily long."""
    game, snake = (hashlib.sha256(part.encode("utf-8", "surrogatepass")) for part in key)
    return game.digest(), snake.digest()


def _session_seed(key: Key) -> int:
    """Return a seed that depends only on the ids."""
    return zlib.crc32(repr(key).encode())
