"""Watchdog thread that stops calls after a timeout."""

from __future__ import annotations

import atexit
import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator

_EXIT_TIMEOUT_S = 1.0
"""Timeout for the return of stopped calls at the end of the program, in seconds.

A C++ call that returns after the end of the interpreter would abort the process.
"""

_CHECK_INTERVAL_S = 0.05
"""Interval between two checks of the deadlines, in seconds.

The thread checks the deadlines while calls are running.
"""


class Watchdog:
    """Watchdog that stops long calls from one daemon thread.

    The thread starts at the first call of `limit` in each process, even after a fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = threading.Event()
        self._calls: dict[object, tuple[float, Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None
        atexit.register(self._stop_all)

    @contextlib.contextmanager
    def limit(self, timeout_s: float, stop: Callable[[], object]) -> Iterator[None]:
        """Call ``stop`` in the watchdog thread if the context exceeds its timeout.

        Args:
            timeout_s: Timeout in seconds.
            stop: Function that stops the call.
        """
        call = object()
        with self._lock:
            self._calls[call] = time.monotonic() + timeout_s, stop
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._check_deadlines, name="watchdog", daemon=True
                )
                self._thread.start()
        self._busy.set()
        try:
            yield
        finally:
            with self._lock:
                del self._calls[call]

    def _check_deadlines(self) -> None:
        while self._busy.wait():
            time.sleep(_CHECK_INTERVAL_S)
            now = time.monotonic()
            with self._lock:
                late = [call for call, (end, _) in self._calls.items() if end <= now]
                for call in late:
                    self._calls[call][1]()
                    self._calls[call] = math.inf, _do_nothing  # The call has not returned yet.
                if all(end == math.inf for end, _ in self._calls.values()):
                    self._busy.clear()

    def _stop_all(self) -> None:
        """Stop all running calls at the end of the program."""
        with self._lock:
            for _, stop in self._calls.values():
                stop()
        end = time.monotonic() + _EXIT_TIMEOUT_S
        while self._calls and time.monotonic() < end:
            time.sleep(_CHECK_INTERVAL_S)


def _do_nothing() -> None:
    """Do nothing; this function replaces the function of a stopped call."""
