"""The replays under some files and folders, found anew whenever somebody looks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from battlesnake_gym.replay import SUFFIXES, Replay, ReplayError


class TooLittleMemoryError(ReplayError):
    """A file that this process has no memory for now."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the library: ``key`` is its name in addresses."""

    key: str
    path: Path
    modified: float
    size: int

    def load(self) -> Replay:
        """The replay in the file.

        Raises `ReplayError` where it is damaged or too large, ``OSError`` if it is gone.
        """
        try:
            return _load(self.path, self.modified, self.size)
        except MemoryError:
            raise TooLittleMemoryError(f"{self.key} needs more memory than there is now") from None


class Library:
    """Recorded games by name, the newest first.

    ``roots`` are files and folders; folders are searched to the bottom. Raises ``ValueError`` where
    one of them does not exist. Nothing outside the roots is ever read.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        for root in roots:
            if not root.exists():
                raise ValueError(f"there is no file or folder {str(root)!r}; check the path")
        self.roots = list(roots)

    def entries(self) -> list[Entry]:
        """All files that may hold a recorded game."""
        found = {}
        for number, root in enumerate(self.roots):
            above = root if root.is_dir() else root.parent
            prefix = f"{number}/" if len(self.roots) > 1 else ""
            for path in _files(root):
                key = prefix + path.relative_to(above).as_posix()
                status = path.stat()
                found[key] = Entry(key, path, status.st_mtime, status.st_size)
        return sorted(found.values(), key=lambda entry: (-entry.modified, entry.key))

    def find(self, key: str) -> Entry | None:
        """The file called ``key``, or None."""
        return next((entry for entry in self.entries() if entry.key == key), None)


def _files(root: Path) -> list[Path]:
    if not root.is_dir():
        return [root]
    return [path for path in root.rglob("*.jsonl*") if _is_replay(path)]


def _is_replay(path: Path) -> bool:
    hidden = path.name.startswith(".")
    return path.name.endswith(SUFFIXES) and not hidden and path.is_file()


@functools.lru_cache(maxsize=4)
def _load(path: Path, modified: float, size: int) -> Replay:
    """``modified`` and ``size`` let a changed file be read again."""
    return Replay.load(path)


__all__ = ["Entry", "Library", "ReplayError", "TooLittleMemoryError"]
