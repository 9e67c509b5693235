"""Handling of SIGTERM and Ctrl-C.

The current work is finished, and work that has not started is canceled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedBeforeTrainingError(KeyboardInterrupt):
    """Error raised if a stop signal arrives before the start of training.

    `KeyboardInterrupt` is the only error that interrupts Ray's waiting. Ray raises any other error
    only after the wait, and wraps the error in an error of its own.
    """


class PendingSignals(list[int]):
    """Numbers of the signals received so far."""

    raise_immediately = False
    """Whether the first signal raises `StoppedBeforeTrainingError` in the main thread."""

    def defer(self) -> None:
        """Record later signals without raising.

        If an earlier signal was recorded but no error was raised, the error is raised now.
        """
        if self.raise_immediately and self:
            raise StoppedBeforeTrainingError
        self.raise_immediately = False


@contextmanager
def deferred_stop_signals(
    doing: str = "this iteration, with a checkpoint", *, raise_immediately: bool = False
) -> Iterator[PendingSignals]:
    """Record SIGTERM and SIGINT in the block instead of ending the process.

    Files are therefore written completely, and a second Ctrl-C loses no data. The first signal
    prints a line that names the work to finish.

    Args:
        doing: Name of the work in the printed line.
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
