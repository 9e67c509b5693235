"""One process a run: a second one would write into the same files."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = ".lock"
"""In the run's folder; tells who writes there. The lock itself is the system's, and ends with the
process, however that ends: a file that was left behind locks nobody out."""


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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise LockedError(
                f"{folder} is being written by {owner}; wait for it, or train under another --name"
            ) from error
        file.truncate(0)
        now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n")
        file.flush()
        yield
