"""CPU time of a training: this process and all that it has started."""

from __future__ import annotations

import time

import psutil

_LOOK_SECONDS = 1.0
"""How long what was seen is good for: to look at all processes takes milliseconds."""


class ProcessTreeCpuClock:
    """CPU seconds of this process and its descendants, Ray's own ones among them.

    A process that has ended still counts if its parent waited for it. Processes of other machines,
    and runners of a Ray that this process has not started, do not count.
    """

    def __init__(self) -> None:
        self._self = psutil.Process()
        self._most = 0.0
        self._looked = -_LOOK_SECONDS

    def __call__(self) -> float:
        """CPU seconds so far; never less than before, and at most `_LOOK_SECONDS` old."""
        if (now := time.monotonic()) < self._looked + _LOOK_SECONDS:
            return self._most
        self._looked = now
        family = [self._self, *self._self.children(recursive=True)]
        self._most = max(self._most, sum(_seconds(process) for process in family))
        return self._most


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0  # it has ended meanwhile
    return float(times.user + times.system + times.children_user + times.children_system)
