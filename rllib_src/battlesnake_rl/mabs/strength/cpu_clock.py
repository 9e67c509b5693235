"""CPU time of a training run: the CPU time of this process and its descendants."""

from __future__ import annotations

import os
import time

from sagemaker_rl.job.process_environment import process_tree_cpu_seconds

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
        self._max_seconds = 0.0
        self._read_at = -_CACHE_S

    def __call__(self) -> float:
        """Return the CPU seconds that the processes have used.

        The value never decreases and is at most `_CACHE_S` seconds old.
        """
        if (now := time.monotonic()) < self._read_at + _CACHE_S:
            return self._max_seconds
        self._read_at = now
        self._max_seconds = max(self._max_seconds, process_tree_cpu_seconds(os.getpid()))
        return self._max_seconds
