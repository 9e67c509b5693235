"""What a server writes to its log, however many games strangers begin to make it write."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

AT_ONCE, SECONDS_EACH = 100.0, 2.0
"""Lines at once, and how long it takes until there may be one more: some 2,000 an hour."""


class Sparing(logging.Filter):
    """Lets so many lines through, and the next one says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lines, self._since = AT_ONCE, clock()
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether there is room for ``record``; its handler asks for one at a time."""
        now = self._clock()
        self._lines = min(AT_ONCE, self._lines + (now - self._since) / SECONDS_EACH)
        self._since = now
        if self._lines < 1:
            self._left_out += 1
            return False
        self._lines -= 1
        if self._left_out:
            record.msg = f"({self._left_out} lines left out) {record.msg}"
            self._left_out = 0
        return True


def log_sparingly() -> None:
    """Write warnings and errors to the standard error, as Python does by itself, but no more."""
    handler = logging.StreamHandler()
    handler.addFilter(Sparing())
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
