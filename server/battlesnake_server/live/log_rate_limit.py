"""Rate limit for a server's log, because any client can cause log lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_BURST_LINES, _LINE_INTERVAL_S = 100.0, 2.0
"""Parameters of the token bucket: lines per burst, and seconds per further line.

The bucket permits about 2,000 lines per hour.
"""


class RateLimitFilter(logging.Filter):
    """Logging filter with a rate limit.

    The next permitted line reports the number of dropped lines.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lines, self._since = _BURST_LINES, clock()
        self._num_dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the rate limit permits ``record``.

        The handler's lock serializes the calls.
        """
        now = self._clock()
        self._lines = min(_BURST_LINES, self._lines + (now - self._since) / _LINE_INTERVAL_S)
        self._since = now
        if self._lines < 1:
            self._num_dropped += 1
            return False
        self._lines -= 1
        if self._num_dropped:
            record.msg = f"({self._num_dropped} lines dropped) {record.msg}"
            self._num_dropped = 0
        return True
