"""Order in which large request bodies are parsed."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OVERSIZED_BODY_BYTES = 1 << 14
"""Minimum size of an oversized body in bytes.

The body for a crowded 19x19 board is smaller.
"""


class ParseGate:
    """Gate that admits one oversized body at a time, the smallest body first.

    Other bodies do not wait. Parsing a body holds the interpreter lock, which all threads share,
    for milliseconds. The gate therefore admits move requests for large boards before maximum-size
    bodies from other clients.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = False
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, threading.Event]] = []

    @contextmanager
    def admit(self, size: int) -> Iterator[None]:
        """Wait until a body of ``size`` bytes may be parsed within the context."""
        if size <= OVERSIZED_BODY_BYTES:
            yield
            return
        admitted = threading.Event()
        with self._lock:
            if self._busy:
                heapq.heappush(self._waiting, (size, next(self._order), admitted))
            else:
                self._busy = True
                admitted.set()
        admitted.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    heapq.heappop(self._waiting)[2].set()
                else:
                    self._busy = False
