"""What a server writes to its log, however many games strangers begin to make it write."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_BURST_LINES, _LINE_INTERVAL_S = 100.0, 2.0
"""Lines at once, and how long it takes until there may be one more: some 2,000 an hour."""


class RateLimitFilter(logging.Filter):
    """Lets so many lines through, and the next one says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lines, self._since = _BURST_LINES, clock()
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether there is room for ``record``; its handler asks for one at a time."""
        now = self._clock()
        self._lines = min(_BURST_LINES, self._lines + (now - self._since) / _LINE_INTERVAL_S)
        self._since = now
        if self._lines < 1:
            self._left_out += 1
            return False
        self._lines -= 1
        if self._left_out:
            record.msg = f"({self._left_out} lines left out) {record.msg}"
            self._left_out = 0
        return True


def configure_rate_limited_logging() -> None:
    """Write warnings and errors to the standard error, as Python does by itself, but no more."""
    handler = logging.StreamHandler()
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
