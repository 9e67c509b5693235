"""Temporary directories that do not outlive a killed process for long.

Each process locks its directories. The next process that creates a temporary directory deletes the
directories of killed processes. The module needs a POSIX system.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from battlesnake_gym.common.file_locks import try_lock
from battlesnake_gym.common.files import DISK_FULL_ERRNOS

# The prefix is short, because Ray creates sockets in the directory, and socket paths have a limit.
_PREFIX = "bsgym-"
_NAME_PATTERN = re.compile(rf"{_PREFIX}[a-z]+-[a-z0-9_]{{8}}")
"""Pattern of the names that `TemporaryDir` creates."""


class TemporaryDir:
    """Temporary directory, which is locked until `delete` is called.

    Attributes:
        path: The directory.

    Args:
        purpose: Part of the directory's name, in lower-case letters.
        parent: Directory in which to create the directory; None means the system's directory for
            temporary files.
    """

    def __init__(self, purpose: str, parent: str | None = None) -> None:
        parent = parent or tempfile.gettempdir()
        _delete_leftovers(Path(parent))
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-", dir=parent))
            # Before the lock, another process may delete the directory as a leftover.
            with suppress(FileNotFoundError):
                self._descriptor = _open(self.path)
                # Some file systems have no locks.
                with suppress(OSError):
                    try_lock(self._descriptor, wait=True)
                if self.path.exists():
                    return
                os.close(self._descriptor)

    def delete(self) -> None:
        """Delete the directory; files that cannot be deleted are kept."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


@contextmanager
def temporary_dir(purpose: str) -> Iterator[Path]:
    """Create a temporary directory that exists while the context is active.

    If the disk of the directory is full, the error names the directory. Python's errors of writes
    name no file.

    Args:
        purpose: Part of the directory's name, in lower-case letters.
    """
    directory = TemporaryDir(purpose)
    try:
        yield directory.path
    except OSError as error:
        named = error.filename2 or error.filename or directory.path
        if error.errno not in DISK_FULL_ERRNOS or not Path(named).is_relative_to(directory.path):
            raise
        raise OSError(error.errno, error.strerror, str(directory.path)) from error
    finally:
        directory.delete()


def _open(path: Path) -> int:
    """Open a directory without following a symbolic link; return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _delete_leftovers(parent: Path) -> None:
    """Delete this user's unlocked temporary directories in ``parent``."""
    for path in parent.glob(f"{_PREFIX}*"):
        if _NAME_PATTERN.fullmatch(path.name):
            # Another process may delete the directory, and some file systems have no locks.
            with suppress(OSError):
                descriptor = _open(path)
                try:
                    if os.fstat(descriptor).st_uid == os.getuid() and try_lock(descriptor):
                        shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(descriptor)
