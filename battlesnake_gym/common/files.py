"""Atomic file writes and reproducible archives."""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from battlesnake_gym.common.file_locks import try_lock

if TYPE_CHECKING:
    from numpy.typing import NDArray

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exceeded quota and a file size limit."""

_SYNC_UNSUPPORTED_ERRNOS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
"""Errors of file systems that cannot sync a directory, such as network mounts."""

_PART_FILE_PATTERN = re.compile(r"\..+\.[0-9a-f]{8}\.part")
"""Pattern of the names of `write_atomically`'s temporary files."""

_cleaned_dirs: set[Path] = set()
"""Directories in which this process has deleted leftover temporary files."""


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Write a temporary file beside ``path`` and rename the file to ``path``.

    If ``write`` raises an exception, ``path`` is unchanged. When this function returns, the file
    and its directory entry are on disk. After a power failure, ``path`` has its old or its new
    content and is never empty. The first call for a directory deletes the temporary files that
    killed processes left there.

    Args:
        path: Target file; a missing directory is created.
        write: Function that writes the file at the path that it receives.

    Raises:
        OSError: If the file cannot be written; the error names ``path``.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.parent not in _cleaned_dirs:
        _cleaned_dirs.add(target.parent)
        _delete_leftovers(target.parent)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with _locked(temporary):
            write(temporary)
            sync(temporary)
            temporary.replace(target)
    except OSError as error:
        # The error for a full disk names no file, or a copied file and the temporary file.
        named = error.filename2 or error.filename
        if error.errno is None or named not in (None, str(temporary), str(target)):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        # The disk may be read-only.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync(target.parent)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Create and lock a file.

    The lock prevents other processes from deleting the file as a leftover.
    """
    # Windows cannot rename an open file.
    if os.name == "nt":
        yield
        return
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        # Some file systems have no locks.
        with suppress(OSError):
            try_lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def _delete_leftovers(directory: Path) -> None:
    """Delete the unlocked temporary files in ``directory``."""
    # The directory may be unreadable.
    with suppress(OSError):
        for path in directory.iterdir():
            if _PART_FILE_PATTERN.fullmatch(path.name) and path.is_file():
                # Some file systems have no locks.
                with suppress(OSError), path.open() as file:
                    if try_lock(file):
                        path.unlink()


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until the content of a file, or the entries of a directory, are on disk.

    Syncing a file takes about 0.4 ms on an SSD. The function does nothing for directories on
    Windows and on file systems that cannot sync a directory.
    """
    is_directory = os.path.isdir(path)  # noqa: PTH112
    if is_directory and os.name == "nt":
        return
    # Windows can sync only files that are open for writing.
    descriptor = os.open(path, os.O_RDONLY if is_directory else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not is_directory or error.errno not in _SYNC_UNSUPPORTED_ERRNOS:
            raise
    finally:
        os.close(descriptor)


def sync_tree(directory: str | os.PathLike[str]) -> None:
    """Wait until a directory with all its files and subdirectories is on disk."""
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            sync(os.path.join(folder, name))  # noqa: PTH118
        sync(folder)


def save_arrays(path: str | os.PathLike[str], **arrays: NDArray[Any]) -> None:
    """Save named arrays to ``path`` atomically, in the format of ``numpy.load``."""
    # Most commands save no arrays, and start faster without NumPy.
    import numpy as np

    def write(temporary: Path) -> None:
        # NumPy would append .npz to a path, but does not rename an open file.
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file.

    Raises:
        ValueError: If the file has more than ``max_bytes`` bytes.
    """
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{path}: more than {max_bytes} bytes")
    return data


def check_replaceable(path: Path | None, load: Callable[[Path], object]) -> None:
    """Reject an existing output file that ``load`` cannot read, so that no user's file is lost.

    Raises:
        ValueError: If the file has other content.
    """
    if path is not None and path.is_file() and path.stat().st_size:
        try:
            load(path)
        except ValueError as error:
            raise ValueError(
                f"{path} exists and has other content; choose another name, or delete it"
            ) from error


def create_zip(files: Iterable[tuple[str, bytes]], mode: int) -> bytes:
    """Return the bytes of a ZIP archive.

    The same files always result in the same bytes.

    Args:
        files: Pairs of file name and file content.
        mode: Permissions of every file, such as 0o644.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files:
            # The default date is 1980-01-01, so that the archive does not depend on the current
            # time.
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return packed.getvalue()
