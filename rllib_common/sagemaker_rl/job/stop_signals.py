"""SIGTERM and Ctrl-C: what is at work is finished first, and what only begins is broken off."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedBeforeTrainingError(KeyboardInterrupt):
    """A signal came while nothing had begun that would have to be finished.

    Ray breaks off its waiting for errors of this kind alone: from any other it makes an ordinary
    one, once it has waited to the end.
    """


class PendingSignals(list[int]):
    """The numbers of the signals that came."""

    raise_immediately = False
    """Whether the first one raises `StoppedBeforeTrainingError`, wherever the main thread is."""

    def defer(self) -> None:
        """From now on a signal raises nothing; one that came before does, if it was lost."""
        if self.raise_immediately and self:
            raise StoppedBeforeTrainingError
        self.raise_immediately = False


@contextmanager
def deferred_stop_signals(
    doing: str = "this iteration, with a checkpoint", *, at_once: bool = False
) -> Iterator[PendingSignals]:
    """Within, SIGTERM and SIGINT only add their number to the list, however often they come.

    So nothing that is being written is left half, and who presses Ctrl-C twice loses nothing. The
    first one is answered with what is being finished; where the list is ``raise_immediately``, it raises.
    """
    caught = PendingSignals()
    caught.raise_immediately = at_once

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        if len(caught) > 1:
            return
        # Not by sys.stderr: the signal may have come while that was being written to.
        after = "" if caught.raise_immediately else f" after {doing} (Ctrl+\\ ends now)"
        os.write(2, f"\nstopping{after}\n".encode())
        if caught.raise_immediately:
            raise StoppedBeforeTrainingError

    previous = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
