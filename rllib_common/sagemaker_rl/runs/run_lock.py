"""One process a run: a second one would write into the same files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK_FILE = ".lock"
"""In the run's folder; tells who writes there. The lock itself is the system's, and ends with the
process, however that ends: a file that was left behind locks nobody out."""


_ATTEMPTS, _PAUSE = 5, 0.05
"""Who only looks (`is_held`) has the lock for a moment: so often it is tried, and seconds apart."""


class LockedError(ValueError):
    """Another process writes into the folder; says which."""


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep ``folder`` (made where it is missing) for this process, for the time of the context.

    Raises:
        LockedError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a+") as file:
        for _ in range(_ATTEMPTS):
            if _lock(file, fcntl.LOCK_EX):
                break
            time.sleep(_PAUSE)
        else:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise LockedError(
                f"{folder} is being written by {owner}; wait for it, or train under another --name"
            )
        file.truncate(0)
        now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n")
        file.flush()
        yield


def is_held(folder: Path) -> bool:
    """Whether a process writes into ``folder`` now."""
    try:
        with (folder / LOCK_FILE).open() as file:
            return not _lock(file, fcntl.LOCK_SH)
    except OSError:
        return False


def _lock(file: IO[str], kind: int) -> bool:
    """Take the lock until the file is closed; False where another process has it."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        return True
    return False
