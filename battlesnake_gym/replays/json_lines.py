"""Files of JSON objects, one a line: the form of all recorded games."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from battlesnake_gym.boards import json_fields
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.replays import limits


class ReplayError(ValueError):
    """A game that cannot be read or replayed; the message names file, line and field."""


@contextlib.contextmanager
def at_line(name: str, number: int) -> Iterator[None]:
    """Let errors say in which file and line they arose."""
    try:
        yield
    except ValueError as error:
        raise ReplayError(
            f"{name}, line {number}: {json_fields.sanitize_text(str(error), 500)}"
        ) from error


@contextlib.contextmanager
def warn_when_too_large() -> Iterator[None]:
    """Inside the block, exceeding a limit only warns: what was recorded is not thrown away."""
    try:
        yield
    except ValueError as error:
        warnings.warn(
            f"{error}; the game is kept whole, and can be read where that limit is raised before",
            stacklevel=5,
        )


def write_lines(path: str | os.PathLike[str], lines: list[dict[str, Any]]) -> None:
    """Write JSON objects to a file, one a line, whole or not at all; compressed for ``.gz``.

    Warns where `read_lines` would refuse the file.
    """
    encoded = [(json.dumps(line, separators=(",", ":")) + "\n").encode() for line in lines]
    with warn_when_too_large():
        for _ in _within_limits(encoded, Path(path).name):
            pass
    content = b"".join(encoded)
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # the same replay, the same bytes
    write_atomically(path, lambda part: part.write_bytes(content))


def read_lines(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line, each read when it is asked for.

    Raises `ReplayError` with the line of a bad one, or with the limit (`replays.limits`) that the
    file exceeds: sizes are looked at before anything is unpacked or parsed.
    """
    name = Path(path).name
    number = 0
    try:
        for number, raw in enumerate(_raw_lines(path, name), 1):
            line = json.loads(raw)
            if not isinstance(line, dict):
                got = json_fields.format_value(line)
                raise ReplayError(f"{name}, line {number} must be a JSON object, got {got}")
            yield line
    except ReplayError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{name}, line {number} is not JSON: {error}") from error
    if not number:
        raise ReplayError(f"{name} is empty; the recorder may have stopped before the game's end")


def _raw_lines(path: str | os.PathLike[str], name: str) -> Iterator[bytes]:
    """The lines that are not blank, unpacked where the file is compressed."""
    with Path(path).open("rb") as file:
        _check(os.fstat(file.fileno()).st_size, "LARGEST_FILE", f"{name} has {{}} bytes")
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        opened = gzip.GzipFile(fileobj=file) if packed else file
        try:
            pieces = iter(lambda: opened.readline(limits.MAX_LINE_BYTES + 1), b"")
            yield from (raw for raw in _within_limits(pieces, name) if raw.strip())
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ReplayError(f"{name} is a damaged gzip file: {error}") from error


def _within_limits(raws: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The same lines; raises `ReplayError` at the first one that makes it too much."""
    size = values = 0
    for raw in raws:
        size += len(raw)
        values += sum(raw.count(mark) for mark in (b",", b"[", b"{"))
        _check(len(raw), "LONGEST_LINE", f"{name} has a line of {{}} bytes or more")
        _check(size, "LARGEST_FILE", f"{name} has {{}} bytes or more once it is unpacked")
        _check(values, "MOST_VALUES", f"{name} holds {{}} values or more")
        yield raw


def _check(value: int, limit: str, what: str) -> None:
    most = getattr(limits, limit)
    if value > most:
        raise ReplayError(str(limits.too_large(what.format(value), limit, most)))
