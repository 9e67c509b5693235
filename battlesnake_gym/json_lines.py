"""Files of JSON objects, one a line: the form of all recorded games."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from battlesnake_gym import fields
from battlesnake_gym.files import write_atomically


class ReplayError(ValueError):
    """A game that cannot be read or replayed; the message names file, line and field."""


@contextlib.contextmanager
def at_line(name: str, number: int) -> Iterator[None]:
    """Let errors say in which file and line they arose."""
    try:
        yield
    except ValueError as error:
        raise ReplayError(f"{name}, line {number}: {error}") from error


def write_lines(path: str | os.PathLike[str], lines: list[dict[str, Any]]) -> None:
    """Write JSON objects to a file, one a line, whole or not at all; compressed for ``.gz``."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    content = text.encode()
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # the same replay, the same bytes
    write_atomically(path, lambda part: part.write_bytes(content))


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line; raises `ReplayError` with the line of a bad one."""
    name = Path(path).name
    content = Path(path).read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ReplayError(f"{name} is a damaged gzip file: {error}") from error
    lines = []
    for number, raw in enumerate(content.splitlines(), 1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise ReplayError(f"{name}, line {number} is not JSON: {error}") from error
        if not isinstance(line, dict):
            got = fields.shown(line)
            raise ReplayError(f"{name}, line {number} must be a JSON object, got {got}")
        lines.append(line)
    if not lines:
        raise ReplayError(f"{name} is empty; the recorder may have stopped before the game's end")
    return lines
