"""Handling of SIGTERM, SIGHUP and Ctrl-C.

The current work is finished. Work that has not started is canceled.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop training."""


_IMPORT_RETRY_S, _MAX_IMPORT_RETRIES = 0.05, 200
"""Interval and number of the retries of a signal that arrives during an import.

An error in an import would leave modules half imported, and the export of the policy needs them.
"""


class StoppedBeforeTrainingError(KeyboardInterrupt):
    """Error raised if a stop signal arrives before the start of training.

    `KeyboardInterrupt` is the only error that interrupts Ray's waiting; Ray replaces a subclass
    by `KeyboardInterrupt`. Ray raises other errors only after the wait, as Ray errors.
    """


class PendingSignals(list[int]):
    """Numbers of the stop signals received so far."""

    raise_immediately = False
    """Whether the first signal raises `StoppedBeforeTrainingError` in the main thread."""

    _abort_s = 0.0
    """Time limit of the current block of `abort_after`, in seconds, or 0 for no limit."""

    def defer(self) -> None:
        """Record later signals without raising an error.

        If `raise_immediately` is True and a signal was recorded, the method raises
        `StoppedBeforeTrainingError`.
        """
        if self.raise_immediately and self:
            raise StoppedBeforeTrainingError
        self.raise_immediately = False

    @contextmanager
    def abort_after(self, seconds: float) -> Iterator[None]:
        """Abort the block ``seconds`` seconds after a stop signal.

        If the block still runs at that time, the method raises `KeyboardInterrupt`. Only the main
        thread may call this method.

        Args:
            seconds: Time limit after the first stop signal, in seconds, or 0 for no limit.
        """

        def abort(number: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, abort)
        self._abort_s = seconds
        try:
            if self:
                signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            self._abort_s = 0.0
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def receive(self, number: int) -> None:
        """Record a signal, and start the timer of `abort_after`."""
        self.append(number)
        if self._abort_s and len(self) == 1:
            signal.setitimer(signal.ITIMER_REAL, self._abort_s)


@contextmanager
def handled_signals(
    handler: Callable[[int], object], numbers: Sequence[signal.Signals] = _STOP_SIGNALS
) -> Iterator[None]:
    """Call ``handler`` with the number of each signal that the process receives in the block.

    After SIGHUP, output to the closed terminal is discarded. An ignored SIGHUP stays ignored, as
    under ``nohup``. Only the main thread may enter the block.
    """
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            for stream in terminals:  # A write to a closed terminal would fail.
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        # While Ray starts, its own handler receives the signal first, sets an alarm that aborts the
        # process after 3 s (absl's FailureSignalHandler), and calls this handler.
        if not callable(signal.getsignal(signal.SIGALRM)):
            signal.alarm(0)
        handler(number)

    previous = {
        number: signal.signal(number, on_signal)
        for number in numbers
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def _is_importing() -> bool:
    """Return whether the main thread, which called this function, is importing a module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def deferred_stop_signals(
    doing: str = "this iteration, with a checkpoint", *, raise_immediately: bool = False
) -> Iterator[PendingSignals]:
    """Record SIGTERM, SIGINT and SIGHUP in the block instead of ending the process.

    All files are therefore complete, and a second Ctrl-C loses no data. The first signal prints a
    line that names the work to finish.

    Args:
        doing: Name of the current work, for the printed line.
        raise_immediately: Initial value of `PendingSignals.raise_immediately`.
    """
    pending = PendingSignals()
    pending.raise_immediately = raise_immediately
    raised = False

    def on_signal(number: int) -> None:
        nonlocal raised
        pending.receive(number)
        if len(pending) == 1:
            # The line is not written through sys.stderr, because the signal may interrupt a write
            # to sys.stderr.
            after = "" if pending.raise_immediately else f" after {doing} (Ctrl+\\ ends now)"
            with suppress(OSError):
                os.write(2, f"\nstopping{after}\n".encode())
        if raised or not pending.raise_immediately:
            return
        if _is_importing() and len(pending) <= _MAX_IMPORT_RETRIES:
            retry = threading.Timer(_IMPORT_RETRY_S, os.kill, [os.getpid(), number])
            retry.daemon = True
            retry.start()
            return
        raised = True
        raise StoppedBeforeTrainingError

    with handled_signals(on_signal):
        yield pending
