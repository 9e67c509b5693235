"""Progress of the training in this process: its current step, and when a line about it is due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from sagemaker_rl.job.job_environment import log_line


class Progress:
    """Current step of the training, and the time of the latest progress line.

    Attributes:
        interval_s: Duration without a line after which a line is due, in seconds.
    """

    def __init__(self) -> None:
        self.interval_s = 60.0
        self._show: Callable[[str], object] = log_line
        self.begin_step("starting")
        self.mark_shown()

    def begin_step(self, step: str) -> None:
        """Set the name of a step that starts now."""
        self._step, self._detail, self._began_at = step, "", time.monotonic()

    def set_detail(self, detail: str) -> None:
        """Set the latest result of the current step."""
        self._detail = f": {detail}"

    def mark_shown(self) -> None:
        """Record that a line is shown now."""
        self._shown_at = time.monotonic()

    def is_due(self) -> bool:
        """Return whether no line was shown for `interval_s` seconds."""
        return time.monotonic() - self._shown_at >= self.interval_s

    @contextmanager
    def shown_by(self, bar: tqdm[Any]) -> Iterator[None]:
        """Show the lines of the block next to a progress bar, unless the bar is disabled."""
        self._show = log_line if bar.disable else bar.set_postfix_str
        try:
            yield
        finally:
            self._show = log_line

    @contextmanager
    def lines_every(self, interval_s: float) -> Iterator[None]:
        """Show a line about the current step whenever a line is due, in a thread.

        Args:
            interval_s: Value of the attribute of this name during the block.
        """
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(interval_s / 20):
                if self.is_due():
                    self.mark_shown()
                    seconds = time.monotonic() - self._began_at
                    self._show(f"{self._step}, {seconds:.0f} s{self._detail}")

        before, self.interval_s = self.interval_s, interval_s
        self.begin_step("starting")
        self.mark_shown()
        thread = threading.Thread(target=run, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.interval_s = before


progress = Progress()
"""Progress of the training in this process."""
