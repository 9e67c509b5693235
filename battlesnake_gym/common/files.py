"""Files that are written whole or not at all, and archives that are always the same."""

from __future__ import annotations

import io
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a new file beside ``path``, then put it in its place.

    Where ``write`` fails, ``path`` is as it was before.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        write(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def save_arrays(path: str | os.PathLike[str], **arrays: NDArray[Any]) -> None:
    """Write named arrays to ``path`` as ``numpy.load`` reads them, whole or not at all."""
    import numpy as np  # here: a packed snake plays without it

    def write(part: Path) -> None:
        with part.open("wb") as file:  # of a name, numpy would change the ending
            np.savez(file, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)


def read_bounded(path: Path, most: int) -> bytes:
    """What is in a file; ``ValueError`` where that is more than ``most`` bytes."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path}: more than {most} bytes")
    return data


def zip_bytes(files: Iterable[tuple[str, bytes]], mode: int) -> bytes:
    """An archive of named files with these permissions: the same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files:
            info = zipfile.ZipInfo(name)  # dated 1980, whenever it is made
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return packed.getvalue()
