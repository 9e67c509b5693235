"""Damage to move requests: other JSON values, changed bytes, unusual JSON."""

from __future__ import annotations

import json
import random
import re
from typing import Any

_REPLACEMENT_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 3.5, 1e300, float("nan"), float("inf"), 10**30, 10**400,
    -(10**400), 2**31, 2**63, "", "x", "0", "up", "you", "\ud800", "\0", "é" * 50, "x" * 5000,
    [], {}, [[]], [{}], [None], [1, 2], {"x": 1}, {"x": 1, "y": 2}, [{"x": 1, "y": 2}],
    {"id": "a"}, {"settings": 3}, [{"x": 10**20, "y": 0}] * 3, [{"id": "a", "body": []}] * 100,
)  # fmt: skip

_NESTING_DEPTHS = (10, 100, 500, *range(900, 1000, 5), 5000, 20_000, 100_000)
"""Nesting depths of fuzzed requests.

The parser accepts the first depths. The next depths are near its limit. It rejects the last depths.
"""


def encode_json(body: Any) -> bytes:
    """Encode ``body`` as JSON without spaces."""
    return json.dumps(body, separators=(",", ":")).encode()


def damage_values(body: Any, rng: random.Random) -> Any:
    """Replace or delete one to three random values in ``body``."""
    for _ in range(rng.randint(1, 3)):
        parent, key = body, rng.choice(list(body))
        while isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.93:
            parent = parent[key]
            key = (
                rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
            )
        if isinstance(parent, dict) and rng.random() < 0.15:
            del parent[key]
            if not body:
                break
        else:
            parent[key] = json.loads(json.dumps(rng.choice(_REPLACEMENT_VALUES)))
    return body


def change_bytes(text: bytes, rng: random.Random) -> bytes:
    """Delete, double or replace up to 20 bytes of ``text``."""
    start = rng.randrange(len(text))
    end = start + rng.randint(0, 20)
    by = rng.choice((b"", rng.randbytes(3), text[start:end] * 2, b'"', b"{", b"9" * 5000, b","))
    return text[:start] + by + text[end:]


def make_unusual_json(text: bytes, rng: random.Random) -> bytes:
    """Nest a value of ``text`` deeply, duplicate a key, or change the text encoding."""
    entry: re.Match[bytes] = rng.choice(list(re.finditer(rb'"\w+":(\d+|"[^"]*")', text)))
    match rng.randrange(3):
        case 0:
            depth, left, right = (
                rng.choice(_NESTING_DEPTHS),
                *rng.choice(((b"[", b"]"), (b'{"a":', b"}"))),
            )
            if depth > 20_000:
                left, right = (
                    b"[",
                    b"]",
                )  # The server rejects longer requests without reading the body.
            nested: bytes = left * depth + b"1" + right * depth
            return text[: entry.start(1)] + nested + text[entry.end(1) :]
        case 1:
            again = entry[0].replace(entry[1], encode_json(rng.choice(_REPLACEMENT_VALUES)))
            return text[: entry.start()] + again + b"," + text[entry.start() :]
        case _:
            encoding = rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "utf-16-le"))
            return text.decode().encode(encoding)


def is_playable(body: Any) -> bool:
    """Return whether a damaged request still contains everything that a move needs.

    The game id, the snake id, the board size and the snake's body must be valid.
    """

    def is_whole_number(value: Any) -> bool:
        """Return whether a JSON value is a whole number."""
        return type(value) is int or (type(value) is float and value.is_integer())

    def has_id(value: Any) -> bool:
        """Return whether a JSON value is an object with a nonempty id."""
        return isinstance(value, dict) and isinstance(value.get("id"), str) and value["id"] != ""

    game, board, you = (body.get(key) for key in ("game", "board", "you"))
    if not has_id(game) or not has_id(you) or not isinstance(board, dict):
        return False
    sides: list[Any] = [board.get("width"), board.get("height")]
    if not all(is_whole_number(side) and 1 <= side <= 100 for side in sides):
        return False
    cells = you.get("body")
    if not isinstance(cells, list) or not cells:
        return False
    if not all(
        isinstance(cell, dict) and is_whole_number(cell.get("x")) and is_whole_number(cell.get("y"))
        for cell in cells
    ):
        return False
    width, height = sides
    return any(0 <= cell["x"] < width and 0 <= cell["y"] < height for cell in cells)
