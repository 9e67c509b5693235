"""Order in which large request bodies are parsed."""

from __future__ import annotations

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
        self._changed = threading.Condition()
        self._busy = False
        self._waiting: list[int] = []

    @contextmanager
    def admit(self, size: int) -> Iterator[None]:
        """Wait until a body of ``size`` bytes may be parsed within the context."""
        if size <= OVERSIZED_BODY_BYTES:
            yield
            return
        with self._changed:
            self._waiting.append(size)
            self._changed.wait_for(lambda: not self._busy and size == min(self._waiting))
            self._waiting.remove(size)
            self._busy = True
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
