"""SIGTERM and Ctrl-C: running work is finished first, and work that has not started is canceled."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedBeforeTrainingError(KeyboardInterrupt):
    """A signal arrived before any work started that must be finished.

    Ray interrupts its own waiting only for this kind of error. It converts every other error into
    one of its own, after it has waited to the end.
    """


class PendingSignals(list[int]):
    """Numbers of the signals received so far."""

    raise_immediately = False
    """Whether the first signal raises `StoppedBeforeTrainingError` in the main thread."""

    def defer(self) -> None:
        """Stop raising on signals; raise now if an earlier signal was lost."""
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
        doing: The work, for that line.
        raise_immediately: Initial value of `PendingSignals.raise_immediately`.
    """
    pending = PendingSignals()
    pending.raise_immediately = raise_immediately

    def note(number: int, frame: FrameType | None) -> None:
        pending.append(number)
        if len(pending) > 1:
            return
        # Not through sys.stderr: the signal may interrupt a write to it.
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
