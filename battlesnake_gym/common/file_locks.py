"""File locks that the operating system releases when the process ends.

A kill signal also releases the locks.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from typing import IO

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]


def try_lock(file: int | IO[str], *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or directory until all its descriptors are closed.

    Args:
        file: The open file, or its descriptor.
        shared: Whether other processes may also hold a shared lock.
        wait: Whether to wait until the lock is free.

    Returns:
        True if this call locked the file, or False if another process has locked the file.

    Raises:
        OSError: If the file system has no locks, as some network mounts.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def missing_message(file: IO[str], error: OSError) -> str:
    """Return the message for a file whose file system has no locks."""
    return (
        f"{file.name}: the file system has no file locks (flock: {error.strerror}); "
        "no other command may write there at the same time"
    )


def write_owner(file: IO[str]) -> None:
    """Write this process into a lock file."""
    file.truncate(0)
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n")
    file.flush()


def read_owner(file: IO[str]) -> str:
    """Return the process that `write_owner` wrote into a lock file, or ""."""
    file.seek(0)
    return file.read().strip()


def owner_may_run(file: IO[str]) -> bool:
    """Return whether the process recorded in a lock file may still be running.

    A process of another machine may always be running.
    """
    owner = re.match(r"process (\d+) on (\S+)", read_owner(file))
    if owner is None:
        return False
    if owner[2] != socket.gethostname():
        return True
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        # The process belongs to another user.
        pass
    return True
