"""Reader and writer of JSON Lines files, the file format of all recorded games."""

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
from battlesnake_gym.common.untrusted_text import parse_json, path_text
from battlesnake_gym.replays import limits


class ReplayError(ValueError):
    """Error for an unreadable game.

    The message contains the file, the line and the field.
    """


@contextlib.contextmanager
def at_line(name: str, number: int) -> Iterator[None]:
    """Add the file name and the line number to errors that the context raises."""
    try:
        yield
    except (ValueError, OverflowError) as error:  # A number may exceed the range of a float.
        raise ReplayError(
            f"{name}, line {number}: {json_fields.sanitize_text(str(error), 500)}"
        ) from error


@contextlib.contextmanager
def warn_when_too_large() -> Iterator[None]:
    """Convert errors about exceeded limits to warnings.

    A recording must not be lost because of a limit.
    """
    try:
        yield
    except ValueError as error:
        warnings.warn(
            f"{error}; the complete game is saved; raise that limit to read it",
            stacklevel=5,
        )


def write_lines(path: str | os.PathLike[str], lines: list[dict[str, Any]]) -> None:
    """Write JSON objects to a file atomically, one per line.

    Files with the suffix ``.gz`` are compressed. The function warns if `read_lines` would reject
    the file.
    """
    encoded = [(json.dumps(line, separators=(",", ":")) + "\n").encode() for line in lines]
    with warn_when_too_large():
        for _ in _check_lines(encoded, Path(path).name):
            pass
    content = b"".join(encoded)
    if Path(path).suffix == ".gz":
        # The argument mtime=0 makes the compressed bytes reproducible.
        content = gzip.compress(content, mtime=0)
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def read_lines(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file with one object per line.

    Each line is parsed on demand. File sizes are checked first, before any line is decompressed or
    parsed.

    Raises:
        ReplayError: If a line is not a JSON object, or if the file exceeds one of `replays.limits`;
            the message names the line or the limit.
    """
    name = path_text(Path(path).name)
    number = 0
    for number, raw in enumerate(_raw_lines(path, name), 1):
        try:
            line = parse_json(raw)
        except (ValueError, RecursionError) as error:
            raise ReplayError(f"{name}, line {number} is not JSON: {error}") from error
        if not isinstance(line, dict):
            got = json_fields.format_value(line)
            raise ReplayError(f"{name}, line {number} must be a JSON object, got {got}")
        yield line
    if not number:
        raise ReplayError(f"{name} is empty; the recorder may have stopped early")


def _raw_lines(path: str | os.PathLike[str], name: str) -> Iterator[bytes]:
    """Yield the nonblank lines of a file, which may be compressed."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            limits.check_limit(size, "MAX_REPLAY_BYTES", f"{name} has {size} bytes")
            compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            opened = gzip.GzipFile(fileobj=file) if compressed else file
            pieces = iter(lambda: opened.readline(limits.MAX_LINE_BYTES + 1), b"")
            yield from (raw for raw in _check_lines(pieces, name) if raw.strip())
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ReplayError(f"{name} is a damaged gzip file: {error}") from error
        except json_fields.BoardError as error:
            raise ReplayError(str(error)) from error


def _check_lines(raw_lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines unchanged, after a check of their number of bytes and values.

    Raises:
        BoardError: If a line exceeds a limit.
    """
    size = values = 0
    for raw in raw_lines:
        size += len(raw)
        values += sum(raw.count(mark) for mark in (b",", b"[", b"{"))
        for value, limit, unit in (
            (len(raw), "MAX_LINE_BYTES", "bytes in a line"),
            (size, "MAX_REPLAY_BYTES", "bytes when decompressed"),
            (values, "MAX_JSON_VALUES", "values"),
        ):
            limits.check_limit(value, limit, f"{name} has {value} or more {unit}")
        yield raw
