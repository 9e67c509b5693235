"""Who may think now: a few at once, the most urgent first, and no client that has left."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from battlesnake_server.http.connection_table import ClientState

MAX_BUSY_SEARCH_S = 0.5
"""The longest thought while there are more thinkers than cores: a move of a usual game."""


class NoSlotError(Exception):
    """There was no seat in time, or its client has left."""


class LoadEstimate:
    """How many are in at once, now and recently: the peak fades by half every second.

    Used as a context manager: being in counts, and the peak is what entering gives.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0
        self._peak = 0.0
        self._since = clock()

    def __enter__(self) -> float:
        with self._lock:
            now = self._clock()
            self._inside += 1
            self._peak = max(self._inside, self._peak * 0.5 ** (now - self._since))
            self._since = now
            return self._peak

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1


@dataclass(slots=True)
class _Waiter:
    """One who waits: ``woken`` is set when there is a seat, or no more reason to wait."""

    woken: threading.Event = field(default_factory=threading.Event)
    granted: bool = False


class SearchSlots:
    """``count`` seats, of which ``num_unlimited`` may be taken for any length of time.

    They are given by deadline, the earliest first: a game that allows half a second goes before
    one that allows ten. Of more than ``most_waiting`` the one with the latest deadline is
    turned away.
    """

    def __init__(self, count: int, num_unlimited: int, most_waiting: int) -> None:
        self._count = count
        self._long = num_unlimited
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        self._free = count
        self._order = itertools.count()
        self._queue: list[tuple[float, int, _Waiter]] = []
        self._load = LoadEstimate()

    @contextmanager
    def acquire(self, deadline: float, min_seconds: float, client: ClientState) -> Iterator[float]:
        """Wait for a seat; gives the seconds that may be thought now.

        ``deadline`` (`time.perf_counter`) is when the thought must be over, ``min_seconds`` the seconds
        that are worth it. Raises `NoSlotError`.
        """
        with self._load as load:
            self._wait(deadline - min_seconds, client)
            try:
                left = deadline - time.perf_counter()
                if left < min_seconds or client.disconnected:
                    raise NoSlotError
                if load > self._long:
                    left = min(left, MAX_BUSY_SEARCH_S)
                yield left * min(1.0, self._count / load)
            finally:
                self._leave()

    def _wait(self, until: float, client: ClientState) -> None:
        """Return on a seat."""
        waiter = _Waiter()
        with self._lock:
            if self._free and not self._queue:
                self._free -= 1
                return
            heapq.heappush(self._queue, (until, next(self._order), waiter))
            if len(self._queue) > self._most_waiting:
                _, _, last = max(self._queue)
                self._forget(last)
                last.woken.set()
        client.on_disconnect(waiter.woken.set)
        waiter.woken.wait(max(0.0, until - time.perf_counter()))
        with self._lock:
            if waiter.granted:
                return
            self._forget(waiter)
        raise NoSlotError

    def _leave(self) -> None:
        with self._lock:
            if self._queue:
                _, _, waiter = heapq.heappop(self._queue)
                waiter.granted = True
                waiter.woken.set()
            else:
                self._free += 1

    def _forget(self, waiter: _Waiter) -> None:
        self._queue = [entry for entry in self._queue if entry[2] is not waiter]
        heapq.heapify(self._queue)
