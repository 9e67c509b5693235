"""Library of the replays in a list of files and directories.

Each call searches the directories again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from battlesnake_gym.replays.replay import SUFFIXES, Replay, ReplayError


class TooLittleMemoryError(ReplayError):
    """Error raised if the process has too little free memory to load the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """File of the library.

    Attributes:
        key: Name of the file in addresses.
    """

    key: str
    path: Path
    modified: float
    size: int

    def load(self) -> Replay:
        """Load the replay.

        Raises:
            ReplayError: If the file is damaged or too large.
            OSError: If the file no longer exists.
        """
        try:
            return _load(self.path, self.modified, self.size)
        except MemoryError:
            raise TooLittleMemoryError(f"{self.key} needs more memory than is available") from None


class Library:
    """Recorded games by name.

    Files outside the roots are never read.

    Args:
        roots: Files and directories, which need not exist yet; directories are searched
            recursively.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = list(roots)

    def entries(self) -> list[Entry]:
        """Return all files that may contain a recorded game, newest file first."""
        found = [
            _entry(prefix + path.relative_to(parent).as_posix(), path)
            for prefix, root, parent in self._locations()
            for path in _files(root)
        ]
        return sorted(found, key=lambda entry: (-entry.modified, entry.key))

    def find(self, key: str) -> Entry | None:
        """Return the entry with this key, or None if the library has no such replay."""
        for prefix, root, parent in self._locations():
            path = parent / key.removeprefix(prefix)
            try:
                inside = path.parent.resolve().is_relative_to(parent.resolve())
                named = inside and prefix + path.relative_to(parent).as_posix() == key
                if named and (path == root or (root.is_dir() and _is_replay(path))):
                    return _entry(key, path)
            except (OSError, ValueError):  # The key is not a valid path.
                continue
        return None

    def _locations(self) -> Iterator[tuple[str, Path, Path]]:
        """Yield the key prefix, the path and the base directory of each root."""
        for number, root in enumerate(self.roots):
            prefix = f"{number}/" if len(self.roots) > 1 else ""
            yield prefix, root, root.parent if root.is_file() else root


def _entry(key: str, path: Path) -> Entry:
    status = path.stat()
    return Entry(key, path, status.st_mtime, status.st_size)


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    return [path for path in root.rglob("*.jsonl*") if _is_replay(path)]


def _is_replay(path: Path) -> bool:
    hidden = path.name.startswith(".")
    return path.name.endswith(SUFFIXES) and not hidden and path.is_file()


@functools.lru_cache(maxsize=4)
def _load(path: Path, modified: float, size: int) -> Replay:
    """Load a replay.

    ``modified`` and ``size`` serve only as cache keys.
    """
    return Replay.load(path)


__all__ = ["Entry", "Library", "ReplayError", "TooLittleMemoryError"]
