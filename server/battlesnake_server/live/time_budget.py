"""How long a snake may think: the game's timeout less what the way there and back costs."""

from __future__ import annotations

import math
from collections import deque

DEFAULT_TIMEOUT = 0.5
"""Seconds; what engines mean when they send no timeout, or 0."""

_INITIAL_ROUND_TRIP_FRACTION = 0.2
"""Share of the timeout kept for the round trip while none has been observed."""

_MARGIN_FRACTION = 0.1
"""Share of the timeout that is always kept back: clocks, queues and the network jitter."""

_MAX_MARGIN_S = 0.05
"""Seconds; with long timeouts the margin stops growing here."""

_ROUND_TRIP_DECAY = 0.8
"""After a slow round trip the estimate falls to this share (of the excess) with every turn."""

OVERRUN_WINDOW = 32
"""Thoughts whose ends are remembered: where a host stops a process for a part of every tenth of a
second, one of so many ends at the worst moment."""

_MAX_RESERVE_FRACTION = 0.3
"""Share of a thought that is left for its overrun, at most; one long pause is no rule."""


class OverrunTracker:
    """How much later than they should thoughts ended lately, in seconds.

    The first, which loads what no other has to, says nothing about the next ones.
    """

    def __init__(self) -> None:
        self._late = deque([0.0], OVERRUN_WINDOW)
        self._first = True

    def observe(self, late: float) -> None:
        """A thought ended ``late`` seconds after its time; one that ended earlier says nothing."""
        if late >= 0 and not self._first:
            self._late.append(late)
        self._first = False

    def reserve(self, seconds: float) -> float:
        """What to leave of ``seconds``, so that the next thought ends within them."""
        return min(max(self._late), _MAX_RESERVE_FRACTION * seconds)


class RoundTrip:
    """What one engine observed beyond our own thinking, in seconds; None before the first turn.

    The engine reports in ``latency`` how long it waited for the previous answer; less the time that
    we know we spent, that is network, queues and parsing on both sides. A slow turn counts at once,
    a fast one only slowly, for the slow ones are what loses games.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._spent: float | None = None

    def record_own_time(self, spent: float) -> None:
        """Remember how long the answer took us, in seconds."""
        self._spent = spent

    def observe(self, latency: str) -> None:
        """Read the API's ``latency`` (milliseconds as text) of the previous answer.

        Unreadable and non-positive values are ignored: engines send "" and "0" before they
        have measured anything.
        """
        spent, self._spent = self._spent, None
        waited = _milliseconds(latency)
        if waited is None or spent is None:
            return
        seen = max(0.0, waited - spent)
        before = seen if self.seconds is None else self.seconds
        self.seconds = seen + max(0.0, _ROUND_TRIP_DECAY * (before - seen))


def margin(timeout: float) -> float:
    """The part of ``timeout`` (seconds) that is never thought away."""
    return min(_MAX_MARGIN_S, _MARGIN_FRACTION * timeout)


def grace_period(timeout: float, round_trip: float | None) -> float:
    """Seconds after its budget for which a thought is waited for: half of what else is kept back.

    >>> grace(0.5, 0.1)
    0.025
    """
    unknown = _INITIAL_ROUND_TRIP_FRACTION * timeout if round_trip is None else 0.0
    return (margin(timeout) + unknown) / 2


def time_budget(timeout: float, round_trip: float | None) -> float:
    """Seconds of thinking within ``timeout`` seconds; 0 where nothing is left.

    >>> budget(0.5, 0.1)
    0.35
    >>> budget(0.5, 2.0)
    0.0
    """
    if round_trip is None:
        round_trip = _INITIAL_ROUND_TRIP_FRACTION * timeout
    return max(0.0, round(timeout - round_trip - margin(timeout), 6))


def _milliseconds(latency: str) -> float | None:
    """Seconds, or None where the text is not a positive number."""
    try:
        value = float(latency)
    except ValueError:
        return None
    return value / 1000 if math.isfinite(value) and value > 0 else None
