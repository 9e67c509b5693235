"""Time budget of a move: the game's timeout minus round trip and margin."""

from __future__ import annotations

import math
from collections import deque

DEFAULT_TIMEOUT = 0.5
"""Timeout in seconds if an engine sends no timeout, or 0."""

_INITIAL_ROUND_TRIP_FRACTION = 0.2
"""Fraction of the timeout reserved for the round trip before the first observation."""

_MARGIN_FRACTION = 0.1
"""Fraction of the timeout that is always reserved for jitter of clocks, queues and network."""

_MAX_MARGIN_S = 0.05
"""Maximum margin in seconds, for long timeouts."""

_ROUND_TRIP_DECAY = 0.8
"""Factor per turn of the difference between the estimate and the last observed round trip."""

OVERRUN_WINDOW = 32
"""Number of latest searches whose overruns count.

If a host pauses a process for part of every 0.1 s, about one in 32 searches ends at the worst
moment.
"""

_MAX_RESERVE_FRACTION = 0.3
"""Maximum reserve as a fraction of the time budget, because a single long pause is an outlier."""


class OverrunTracker:
    """Largest recent overrun of the searches, in seconds.

    The first search is ignored, because only it includes loading time.
    """

    def __init__(self) -> None:
        self._late = deque([0.0], OVERRUN_WINDOW)
        self._first = True

    def observe(self, late: float) -> None:
        """Record the delay ``late`` of a search in seconds; ignore negative values."""
        if late >= 0 and not self._first:
            self._late.append(late)
        self._first = False

    def reserve(self, seconds: float) -> float:
        """Return the part of ``seconds`` to reserve so that the next search ends in time."""
        return min(max(self._late), _MAX_RESERVE_FRACTION * seconds)


class RoundTrip:
    """Estimate of the round trip to one engine in ``seconds``; None before the first turn.

    The engine reports in ``latency`` how long it waited for the previous response. The difference
    to the snake's own time is network, queues and parsing on both sides. The estimate follows a
    slow turn immediately and a fast turn only gradually, because slow turns lose games.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._spent: float | None = None

    def record_own_time(self, spent: float) -> None:
        """Store the snake's own time for the response, in seconds."""
        self._spent = spent

    def observe(self, latency: str) -> None:
        """Update the estimate from the API's ``latency`` (milliseconds as text).

        Unreadable and non-positive values are ignored: engines send "" and "0" before they have
        measured a response.
        """
        spent, self._spent = self._spent, None
        waited = _milliseconds(latency)
        if waited is None or spent is None:
            return
        seen = max(0.0, waited - spent)
        before = seen if self.seconds is None else self.seconds
        self.seconds = seen + max(0.0, _ROUND_TRIP_DECAY * (before - seen))


def margin(timeout: float) -> float:
    """Return the reserved part of ``timeout``, both in seconds."""
    return min(_MAX_MARGIN_S, _MARGIN_FRACTION * timeout)


def grace_period(timeout: float, round_trip: float | None) -> float:
    """Return the seconds after the deadline during which a strategy may still return.

    The grace period is half of the reserved time.

    >>> grace_period(0.5, 0.1)
    0.025
    """
    unknown = _INITIAL_ROUND_TRIP_FRACTION * timeout if round_trip is None else 0.0
    return (margin(timeout) + unknown) / 2


def time_budget(timeout: float, round_trip: float | None) -> float:
    """Return the time budget within ``timeout``, both in seconds; 0 if no time is left.

    >>> time_budget(0.5, 0.1)
    0.35
    >>> time_budget(0.5, 2.0)
    0.0
    """
    if round_trip is None:
        round_trip = _INITIAL_ROUND_TRIP_FRACTION * timeout
    return max(0.0, round(timeout - round_trip - margin(timeout), 6))


def _milliseconds(latency: str) -> float | None:
    """Convert milliseconds as text to seconds; return None if the text is not a positive number."""
    try:
        value = float(latency)
    except ValueError:
        return None
    return value / 1000 if math.isfinite(value) and value > 0 else None
