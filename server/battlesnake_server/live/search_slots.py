"""Search slots: a limited number of concurrent searches.

Slots are granted in order of deadline.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

MAX_BUSY_SEARCH_S = 0.5
"""Maximum duration of a search in seconds if there are more searches than cores.

The value is the timeout of a normal game.
"""

_LOAD_HALF_LIFE_S = 1.0
"""Time in seconds in which the recent peak of the number of concurrent searches halves."""


@dataclass(slots=True, order=True)
class _WaitingRequest:
    """Request that waits for a slot until a time (`time.perf_counter`).

    The event ``woken`` is set when a slot is granted or the wait is canceled.
    """

    until: float
    woken: threading.Event = field(default_factory=threading.Event, compare=False)
    granted: bool = field(default=False, compare=False)


class SearchSlots:
    """Search slots, granted in order of deadline, earliest first.

    A game with a timeout of 0.5 s therefore receives a slot before a game with 10 s.

    Args:
        num_slots: Number of slots.
        num_unlimited: Number of concurrent searches up to which the duration of a search is
            unlimited.
        max_waiting: Maximum number of waiting requests. Above the maximum, the request with the
            latest deadline is rejected.
    """

    def __init__(self, num_slots: int, num_unlimited: int, max_waiting: int) -> None:
        self._num_slots = num_slots
        self._num_unlimited = num_unlimited
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._free = num_slots
        self._queue: list[_WaitingRequest] = []  # In order of deadline.
        self._num_searches = 0  # Includes waiting requests.
        self._peak, self._peak_at = 0.0, time.perf_counter()

    @contextmanager
    def acquire(
        self, deadline: float, min_seconds: float, disconnected: Future[None]
    ) -> Iterator[float]:
        """Wait for a search slot, and yield the time budget of the search in seconds.

        Args:
            deadline: Latest end of the search (`time.perf_counter`).
            min_seconds: Minimum useful duration of a search, in seconds.
            disconnected: Future that completes if the client disconnects; the wait then ends.

        Raises:
            TimeoutError: If no slot is free in time, or the client has disconnected.
        """
        load = self._enter()
        try:
            self._wait_for_slot(deadline - min_seconds, disconnected)
            try:
                left = deadline - time.perf_counter()
                if left < min_seconds or disconnected.done():
                    raise TimeoutError
                if load > self._num_unlimited:
                    left = min(left, MAX_BUSY_SEARCH_S)
                yield left * min(1.0, self._num_slots / load)
            finally:
                self._release_slot()
        finally:
            with self._lock:
                self._num_searches -= 1

    def _enter(self) -> float:
        """Count a search, and return the recent peak of the number of concurrent searches."""
        with self._lock:
            now = time.perf_counter()
            decay = 0.5 ** ((now - self._peak_at) / _LOAD_HALF_LIFE_S)
            self._num_searches += 1
            self._peak, self._peak_at = max(self._num_searches, self._peak * decay), now
            return self._peak

    def _wait_for_slot(self, until: float, disconnected: Future[None]) -> None:
        """Wait until a slot is granted."""
        waiter = _WaitingRequest(until)
        with self._lock:
            if self._free and not self._queue:
                self._free -= 1
                return
            bisect.insort(self._queue, waiter)
            if len(self._queue) > self._max_waiting:
                self._queue.pop().woken.set()
        disconnected.add_done_callback(lambda done: waiter.woken.set())
        waiter.woken.wait(max(0.0, until - time.perf_counter()))
        with self._lock:
            if waiter.granted:
                return
            self._queue = [other for other in self._queue if other is not waiter]
        raise TimeoutError

    def _release_slot(self) -> None:
        """Pass a slot to the request with the earliest deadline, or free the slot."""
        with self._lock:
            if self._queue:
                waiter = self._queue.pop(0)
                waiter.granted = True
                waiter.woken.set()
            else:
                self._free += 1
