"""Library of the replays in a list of files and directories.

Each method call searches the directories again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from battlesnake_gym.common.untrusted_text import path_text
from battlesnake_gym.replays.replay import REPLAY_SUFFIXES, Replay
from battlesnake_server.file_cache import cache_by_file


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """Replay file of the library.

    Attributes:
        key: Name of the file in addresses and on pages.
        path: Path of the file.
        modified: Modification time as a Unix timestamp in seconds.
        size: Size of the file in bytes.
        view_radius: View radius if the game's settings have none; None for no limit.
    """

    key: str
    path: Path
    modified: float
    size: int
    view_radius: int | None

    @property
    def modified_text(self) -> str:
        """Modification time as text, or "" for an invalid time."""
        try:
            return datetime.fromtimestamp(self.modified).strftime("%Y-%m-%d %H:%M")
        # The modification time of a file may be any number.
        except (ValueError, OverflowError, OSError):
            return ""

    def load(self) -> Replay:
        """Load the replay.

        Raises:
            ReplayError: If the file is damaged or too large.
            OSError: If the file no longer exists.
            MemoryError: If the process has too little free memory to load the file.
        """
        try:
            return _load_replay(self.path, view_radius=self.view_radius)
        except MemoryError:
            raise MemoryError(f"{self.key} needs more memory than is available") from None


class Library:
    """Recorded games, by the name of the file.

    Files outside the roots are never read.

    Args:
        roots: Files and directories, which need not exist yet; directories are searched
            recursively.
        view_radius: View radius of games whose settings have none; None for no limit.
    """

    def __init__(self, roots: Sequence[Path], view_radius: int | None = None) -> None:
        self.roots = list(roots)
        self._view_radius = view_radius

    def entries(self) -> list[LibraryEntry]:
        """Return all files that may contain a recorded game, newest file first."""
        found = (
            self._make_entry(path_text(prefix + path.relative_to(parent).as_posix()), path)
            for prefix, root, parent in self._iter_roots()
            for path in _find_replays(root)
        )
        return sorted(
            (entry for entry in found if entry is not None),
            key=lambda entry: (-entry.modified, entry.key),
        )

    def find(self, key: str) -> LibraryEntry | None:
        """Return the entry with this key, or None if the library does not contain the replay."""
        if "\N{REPLACEMENT CHARACTER}" in key:  # The file name may contain invalid UTF-8.
            return next((entry for entry in self.entries() if entry.key == key), None)
        for prefix, root, parent in self._iter_roots():
            path = parent / key.removeprefix(prefix)
            try:
                inside = path.parent.resolve().is_relative_to(parent.resolve())
                named = inside and prefix + path.relative_to(parent).as_posix() == key
                if named and (path == root or (root.is_dir() and _is_replay_name(path.name))):
                    return self._make_entry(key, path)
            except (OSError, ValueError):  # The key is not a valid path.
                continue
        return None

    def _iter_roots(self) -> Iterator[tuple[str, Path, Path]]:
        """Yield the key prefix, the path and the base directory of each root."""
        for number, root in enumerate(self.roots):
            prefix = f"{number}/" if len(self.roots) > 1 else ""
            yield prefix, root, root.parent if root.is_file() else root

    def _make_entry(self, key: str, path: Path) -> LibraryEntry | None:
        """Return the entry of a file, or None if the file does not exist."""
        try:
            status = path.stat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return LibraryEntry(key, path, status.st_mtime, status.st_size, self._view_radius)


def _find_replays(root: Path) -> list[Path]:
    """Return the replay files in a directory, or the file itself."""
    if root.is_file():
        return [root]
    # `os.walk` ignores directories that another process deletes; `Path.rglob` raises an error.
    found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return [path for path in found if _is_replay_name(path.name)]


def _is_replay_name(name: str) -> bool:
    """Return whether a file name is the name of a visible replay file."""
    return name.endswith(REPLAY_SUFFIXES) and not name.startswith(".")


def has_view_radius(path: Path) -> bool:
    """Return whether a path is a recorded game whose settings contain a view radius."""
    return path.is_file() and Replay.stream(path)[0].game.settings.view_radius is not None


@cache_by_file(4)
def _load_replay(path: Path, view_radius: int | None) -> Replay:
    """Load a replay, with a view radius if the settings of the game have none."""
    replay = Replay.load(path)
    replay.set_default_view_radius(view_radius)
    return replay
