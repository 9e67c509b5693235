"""CPU time of a training run: the CPU time of this process and its descendants."""

from __future__ import annotations

import time

import psutil

_CACHE_S = 1.0
"""Seconds for which the clock returns the same measurement.

A new measurement costs milliseconds.
"""


class ProcessTreeCpuClock:
    """Clock for the CPU seconds of this process and its descendants.

    The descendants include Ray's processes. A finished process counts if its parent waited for the
    process. Processes on other machines do not count. If another process started the Ray cluster,
    the cluster's processes do not count.
    """

    def __init__(self) -> None:
        self._self = psutil.Process()
        self._max_seconds = 0.0
        self._read_at = -_CACHE_S

    def __call__(self) -> float:
        """Return the CPU seconds that the processes have used.

        The value never decreases and is at most `_CACHE_S` seconds old.
        """
        if (now := time.monotonic()) < self._read_at + _CACHE_S:
            return self._max_seconds
        self._read_at = now
        processes = [self._self, *self._self.children(recursive=True)]
        self._max_seconds = max(
            self._max_seconds, sum(_process_cpu_seconds(process) for process in processes)
        )
        return self._max_seconds


def _process_cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its finished children.

    For an ended process, the function returns 0.
    """
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0  # The process has ended.
    return float(times.user + times.system + times.children_user + times.children_system)
