"""Time budget of a move: the game's timeout minus round trip and margin."""

from __future__ import annotations

import math
from collections import deque

DEFAULT_TIMEOUT_S = 0.5
"""Timeout in seconds if an engine does not send a timeout, or sends 0."""

_INITIAL_ROUND_TRIP_FRACTION = 0.2
"""Fraction of the timeout reserved for the round trip, before any measurement."""

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

NUM_TRACKED_OVERRUNS = 32
"""Number of recent overruns that `OverrunTracker` stores.

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
        self._late = deque([0.0], NUM_TRACKED_OVERRUNS)
        self._first = True

    def observe(self, overrun_s: float) -> None:
        """Record the overrun of a search in seconds.

        Negative overruns are ignored.
        """
        if overrun_s >= 0 and not self._first:
            self._late.append(overrun_s)
        self._first = False

    def reserve_s(self, seconds: float) -> float:
        """Return the reserve in seconds for a search with a time budget of ``seconds``."""
        return min(max(self._late), _MAX_RESERVE_FRACTION * seconds)


def _margin_s(timeout: float) -> float:
    """Return the margin in seconds for a ``timeout`` in seconds."""
    return min(_MAX_MARGIN_S, _MARGIN_FRACTION * timeout)


class RoundTripEstimate:
    """Estimate of the round trip to one engine.

    The engine's ``latency`` is the time from its previous request to the response. The difference
    between this time and the snake's own time is the round trip. The round trip includes network,
    queues and parsing on both sides. A slow turn raises the estimate immediately, and a fast turn
    lowers the estimate only gradually, because slow turns lose games.

    Attributes:
        seconds: The estimate in seconds, or None before the first measurement.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._own_time_s: float | None = None

    def record_own_time(self, own_time_s: float) -> None:
        """Store the duration of the snake's own work on a response, in seconds."""
        self._own_time_s = own_time_s

    def observe(self, latency: str) -> None:
        """Update the estimate from the API's ``latency`` (milliseconds as text).

        Unreadable and non-positive values are ignored, because engines send "" and "0" before they
        have measured a response.
        """
        spent, self._own_time_s = self._own_time_s, None
        waited = _parse_latency_s(latency)
        if waited is None or spent is None:
            return
        seen = max(0.0, waited - spent)
        before = seen if self.seconds is None else self.seconds
        self.seconds = seen + max(0.0, _ROUND_TRIP_DECAY * (before - seen))

    def grace_period_s(self, timeout: float) -> float:
        """Return the grace period after the deadline of a move, in seconds.

        During the grace period, a strategy may still return. The grace period is half of the
        reserved time, except the measured round trip. ``timeout`` is in seconds.
        """
        unknown = _INITIAL_ROUND_TRIP_FRACTION * timeout if self.seconds is None else 0.0
        return (_margin_s(timeout) + unknown) / 2

    def time_budget_s(self, timeout: float) -> float:
        """Return the time budget of a move in seconds, or 0 if no time is left.

        ``timeout`` is the timeout of the game in seconds.

        >>> RoundTripEstimate().time_budget_s(0.5)
        0.35
        """
        reserved = self.seconds
        if reserved is None:
            reserved = _INITIAL_ROUND_TRIP_FRACTION * timeout
        return max(0.0, round(timeout - reserved - _margin_s(timeout), 6))


def _parse_latency_s(latency: str) -> float | None:
    """Return the latency in seconds, or None if the text is not a positive number.

    Args:
        latency: Milliseconds as text.
    """
    try:
        value = float(latency)
    except ValueError:
        return None
    return value / 1000 if math.isfinite(value) and value > 0 else None
