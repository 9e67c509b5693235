"""Pondering: search on the expected position while opponents choose their moves."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from battlesnake_gym.boards.board import Board
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.search.search import SHOULD_STOP, Search
from battlesnake_server.http.thread_pool import ThreadPool
from battlesnake_server.live.sessions import Key
from battlesnake_server.live.time_budget import DEFAULT_TIMEOUT_S

MAX_PONDER_TIMEOUTS = 2.0
"""Maximum duration of pondering, as a multiple of the game's timeout.

The next move request is expected within this duration.
"""

_MAX_STOP_S = 0.05
"""Maximum time in seconds that a move request waits for the end of pondering."""

log = logging.getLogger(__name__)


class Ponderer:
    """Thread that ponders on one core until the next move request arrives.

    The search checks the stop signal about 50 times per second, so a search stops within 20 ms.
    """

    def __init__(self) -> None:
        self._threads = ThreadPool("ponderer", 1, low_priority=True)
        self._lock = threading.Lock()
        self._num_pauses = 0
        self._idle = threading.Event()
        self._idle.set()
        self._last: Key | None = None
        self._failed = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause pondering within the context.

        The context starts when a decoupled search has stopped, because the next search continues
        its tree. Other searches share the transposition table while they still run.
        """
        with self._lock:
            self._num_pauses += 1
        self._idle.wait(_MAX_STOP_S)
        try:
            yield
        finally:
            with self._lock:
                self._num_pauses -= 1

    def ponder(self, search: Search, board: Board, decision: Decision) -> None:
        """Start pondering on ``decision``, and cancel any other pondering.

        The method returns immediately.
        """
        self._last = mine = (board.game.id, board.you_id or "")
        self._threads.submit(functools.partial(self._ponder, search, board, decision, mine))

    def cancel(self, key: Key) -> None:
        """Cancel pondering of a snake in a game."""
        if self._last == key:
            self._last = None

    def _ponder(self, search: Search, board: Board, decision: Decision, mine: Key) -> None:
        """Ponder until another position or a move request replaces this one."""

        def should_stop() -> bool:
            return self._num_pauses > 0 or self._last is not mine

        if search.decoupled and len(board.living) > 1:
            self._idle.clear()
        before = SHOULD_STOP.set(should_stop)
        timeout = board.game.timeout / 1000 or DEFAULT_TIMEOUT_S
        try:
            if not should_stop():
                search.ponder(board, decision, MAX_PONDER_TIMEOUTS * timeout)
        except Exception:  # The thread must survive for the next position.
            if not self._failed:
                log.exception("pondering failed; later failures are not logged")
            self._failed = True
        finally:
            SHOULD_STOP.reset(before)
            self._idle.set()
