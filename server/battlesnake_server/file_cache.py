"""Cache of objects that are loaded from files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


def cache_by_file(maxsize: int) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
    """Return a decorator that caches the results of a function of file paths and options.

    A result is cached until one of the files changes or another file has its path.

    Args:
        maxsize: Maximum number of cached results.
    """

    def decorate(load: Callable[..., _T]) -> Callable[..., _T]:
        @functools.lru_cache(maxsize)
        def load_cached(*states: tuple[Path, *tuple[int, ...]], **options: Hashable) -> _T:
            return load(*(path for path, *_ in states), **options)

        @functools.wraps(load)
        def load_current(*paths: str | Path, **options: Hashable) -> _T:
            return load_cached(*map(_file_state, paths), **options)

        return load_current

    return decorate


def _file_state(path: str | Path) -> tuple[Path, *tuple[int, ...]]:
    """Return the path, the identity, the modification time and the size of a file."""
    try:
        status = Path(path).stat()
    except OSError:
        return (Path(path),)  # The function that loads the file reports the error.
    return Path(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
