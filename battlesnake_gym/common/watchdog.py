"""Thread that stops calls after their timeout."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_EXIT_S = 1.0
"""Maximum wait for stopped calls at the end of the program, in seconds.

C++ code that returns to an interpreter that has ended aborts the process.
"""

_TICK_S = 0.05
"""Interval between two checks while calls are running, in seconds."""


class Watchdog:
    """Watchdog that stops long calls from one daemon thread.

    The thread starts with the first call, and again with the first call after a fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = threading.Event()
        self._calls: dict[object, tuple[float, Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None
        atexit.register(self._stop_all)

    @contextlib.contextmanager
    def limit(self, seconds: float, stop: Callable[[], object]) -> Iterator[None]:
        """Call ``stop`` in the thread if the context lasts longer than ``seconds``."""
        call = object()
        with self._lock:
            self._calls[call] = time.monotonic() + seconds, stop
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()
        self._busy.set()
        try:
            yield
        finally:
            with self._lock:
                self._calls.pop(call, None)

    def _run(self) -> None:
        while self._busy.wait():
            time.sleep(_TICK_S)
            now = time.monotonic()
            with self._lock:
                late = [call for call, (end, _) in self._calls.items() if end <= now]
                for call in late:
                    self._calls.pop(call)[1]()
                if not self._calls:
                    self._busy.clear()

    def _stop_all(self) -> None:
        """Stop all running calls at the end of the program."""
        with self._lock:
            for _, stop in self._calls.values():
                stop()
        end = time.monotonic() + _EXIT_S
        while self._calls and time.monotonic() < end:
            time.sleep(_TICK_S)
