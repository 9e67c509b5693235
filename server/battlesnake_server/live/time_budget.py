"""Time budget of a move: the game's timeout minus round trip and margin."""

from __future__ import annotations

import math
from collections import deque

DEFAULT_TIMEOUT = 0.5
"""Timeout in seconds if an engine sends no timeout or a timeout of 0."""

_INITIAL_ROUND_TRIP_FRACTION = 0.2
"""Fraction of the timeout reserved for the round trip before a measurement."""

_MARGIN_FRACTION = 0.1
"""Fraction of the timeout that is always reserved as a margin.

The margin covers jitter of clocks, queues and network.
"""

_MAX_MARGIN_S = 0.05
"""Maximum margin in seconds, for long timeouts."""

_ROUND_TRIP_DECAY = 0.8
"""Decay factor of the round-trip estimate, per turn.

The factor applies to the difference between the estimate and the last measurement.
"""

OVERRUN_WINDOW = 32
"""Number of most recent searches whose overruns count.

If a host pauses a process for part of every 0.1 s, about one in 32 searches ends at the worst
moment.
"""

_MAX_RESERVE_FRACTION = 0.3
"""Maximum reserve as a fraction of the time budget.

The maximum limits the effect of a single long pause.
"""


class OverrunTracker:
    """Largest recent overrun of the searches, in seconds.

    The first search is ignored, because its duration includes loading time.
    """

    def __init__(self) -> None:
        self._late = deque([0.0], OVERRUN_WINDOW)
        self._first = True

    def observe(self, late: float) -> None:
        """Record the delay ``late`` of a search in seconds.

        Negative delays are ignored.
        """
        if late >= 0 and not self._first:
            self._late.append(late)
        self._first = False

    def reserve(self, seconds: float) -> float:
        """Return the reserve in seconds so that a search of ``seconds`` ends in time."""
        return min(max(self._late), _MAX_RESERVE_FRACTION * seconds)


class RoundTrip:
    """Estimate of the round trip to one engine.

    The engine reports in ``latency`` the time from its previous request to the response. The
    difference from the snake's own time is the time for network, queues and parsing on both sides.
    The estimate follows a slow turn immediately and a fast turn only gradually, because slow turns
    lose games. The attribute ``seconds`` is the estimate in seconds, or None before the first turn.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._spent: float | None = None

    def record_own_time(self, spent: float) -> None:
        """Store the duration ``spent`` of the snake's own work on a response, in seconds."""
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
    """Return the grace period after the deadline, in seconds.

    During the grace period, a strategy may still return. The grace period is half of the reserved
    time. Both arguments are in seconds.

    >>> grace_period(0.5, 0.1)
    0.025
    """
    unknown = _INITIAL_ROUND_TRIP_FRACTION * timeout if round_trip is None else 0.0
    return (margin(timeout) + unknown) / 2


def time_budget(timeout: float, round_trip: float | None) -> float:
    """Return the time budget in seconds, or 0 if no time is left.

    Args:
        timeout: Timeout of the game in seconds.
        round_trip: Estimated round trip in seconds, or None.

    >>> time_budget(0.5, 0.1)
    0.35
    >>> time_budget(0.5, 2.0)
    0.0
    """
    if round_trip is None:
        round_trip = _INITIAL_ROUND_TRIP_FRACTION * timeout
    return max(0.0, round(timeout - round_trip - margin(timeout), 6))


def _milliseconds(latency: str) -> float | None:
    """Return the latency in seconds, or None if the text is not a positive number.

    Args:
        latency: Milliseconds as text.
    """
    try:
        value = float(latency)
    except ValueError:
        return None
    return value / 1000 if math.isfinite(value) and value > 0 else None
