"""What a training says at its end, and being told to stop."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WORDS = ("result", "strength", "model", "report", "next")


def told(out: str, run: Path) -> dict[str, str]:
    """The last five lines of a training's ``out`` by their words; the report lies in ``run``."""
    lines = dict(line.split(": ", 1) for line in out.splitlines()[-len(WORDS) :])
    assert tuple(lines) == WORDS
    assert lines["report"].startswith(f"{run}/report.html, ")
    assert "</html>" in (run / "report.html").read_text()
    return lines


@contextmanager
def told_to_stop(when: Callable[[], object]) -> Iterator[None]:
    """Within, this process gets a SIGTERM once that is so."""
    over = threading.Event()

    def stop() -> None:
        while not over.wait(0.01):
            if when():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    try:
        yield
    finally:
        over.set()
        stopper.join()
