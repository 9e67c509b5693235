"""Handling of SIGTERM and Ctrl-C.

Running work is finished first, and work that has not started is canceled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedBeforeTrainingError(KeyboardInterrupt):
    """Stop signal that arrived before the start of work that must be finished.

    A KeyboardInterrupt is the only error that interrupts Ray's own waiting. Ray waits to the end
    before it raises any other error, which it wraps in an error of its own.
    """


class PendingSignals(list[int]):
    """Numbers of the signals received so far."""

    raise_immediately = False
    """Whether the first signal raises `StoppedBeforeTrainingError` in the main thread."""

    def defer(self) -> None:
        """Stop raising on signals, or raise now if an earlier signal was lost."""
        if self.raise_immediately and self:
            raise StoppedBeforeTrainingError
        self.raise_immediately = False


@contextmanager
def deferred_stop_signals(
    doing: str = "this iteration, with a checkpoint", *, raise_immediately: bool = False
) -> Iterator[PendingSignals]:
    """Record SIGTERM and SIGINT in the block instead of ending the process.

    Files are therefore written completely, and a second Ctrl-C loses nothing. The first signal
    prints a line that names the work that is finished first.

    Args:
        doing: Description of the work in the printed line.
        raise_immediately: Initial value of `PendingSignals.raise_immediately`.
    """
    pending = PendingSignals()
    pending.raise_immediately = raise_immediately

    def note(number: int, frame: FrameType | None) -> None:
        pending.append(number)
        if len(pending) > 1:
            return
        # The line is not written through sys.stderr, because the signal may interrupt a write to
        # sys.stderr.
        after = "" if pending.raise_immediately else f" after {doing} (Ctrl+\\ ends now)"
        os.write(2, f"\nstopping{after}\n".encode())
        if pending.raise_immediately:
            raise StoppedBeforeTrainingError

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield pending
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
