"""The replays under some files and folders, found anew at each look."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from battlesnake_gym.replays.replay import SUFFIXES, Replay, ReplayError


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

    ``roots`` are files and folders, which may still be missing; folders are searched to the bottom.
    Nothing outside the roots is ever read.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = list(roots)

    def entries(self) -> list[Entry]:
        """All files that may hold a recorded game."""
        found = [
            _entry(prefix + path.relative_to(above).as_posix(), path)
            for prefix, root, above in self._places()
            for path in _files(root)
        ]
        return sorted(found, key=lambda entry: (-entry.modified, entry.key))

    def find(self, key: str) -> Entry | None:
        """The file called ``key``, or None; other files are not looked at."""
        for prefix, root, above in self._places():
            path = above / key.removeprefix(prefix)
            try:
                inside = path.parent.resolve().is_relative_to(above.resolve())
                named = inside and prefix + path.relative_to(above).as_posix() == key
                if named and (path == root or (root.is_dir() and _is_replay(path))):
                    return _entry(key, path)
            except (OSError, ValueError):  # no path is like that
                continue
        return None

    def _places(self) -> Iterator[tuple[str, Path, Path]]:
        """What names begin with, a root, and the folder that the rest of its names starts from."""
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
    """``modified`` and ``size`` let a changed file be read again."""
    return Replay.load(path)


__all__ = ["Entry", "Library", "ReplayError", "TooLittleMemoryError"]
