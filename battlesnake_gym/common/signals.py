"""Blocking of signals."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def mask_signal(number: int, block: bool = True) -> Iterator[None]:
    """Block or unblock a signal while the context is active.

    The mask applies to the current thread. The function does nothing on Windows.
    """
    if sys.platform == "win32":
        yield
        return
    how = signal.SIG_BLOCK if block else signal.SIG_UNBLOCK
    before = signal.pthread_sigmask(how, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
