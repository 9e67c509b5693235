"""Reading JSON that others wrote: typed access to fields, with errors that name the place.

Missing and null fields take their default; a field of the wrong kind is an error, because guessing
there would play a wrong move silently.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from battlesnake_gym.rules.state import Point

MAX_JSON_BYTES = 1 << 16
"""Bytes of a file of JSON or YAML that says how a snake or a league is; the largest has 4,000."""


class BoardError(ValueError):
    """A board, request or text that cannot be read or played; the message says where and why."""


_BOUNDED = reprlib.Repr()
_BOUNDED.maxstring = _BOUNDED.maxlong = _BOUNDED.maxother = 80
_BOUNDED.maxlist = _BOUNDED.maxdict = 20


def format_value(value: object) -> str:
    """``value`` as an error message shows it: short, whatever was sent.

    >>> shown("x" * 1000)[:10], len(shown("x" * 1000))
    ("'xxxxxxxxx", 60)
    >>> shown([[[[[[[[1]]]]]]]])
    '[[[[[[[...]]]]]]]'
    """
    # A text is cut before it is quoted, and a list or an object is not followed into its depths.
    text = repr(value[:60]) if isinstance(value, str) else _BOUNDED.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse(data: bytes) -> Any:
    """What a short file of JSON holds; ``ValueError`` for what is too long, too deep or no JSON."""
    if len(data) > MAX_JSON_BYTES:
        raise BoardError(f"more than {MAX_JSON_BYTES} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise BoardError("nested too deeply") from None


def join(path: str, key: str) -> str:
    """The JSON path of ``key`` below ``path``; the root's path is empty."""
    return f"{path}.{key}" if path else key


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """``value`` as a JSON object; null counts as empty."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BoardError(f"{path or 'request'} must be a JSON object, got {format_value(value)}")
    return value


def child(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """The object under ``key``, empty where missing."""
    return mapping(parent.get(key), join(path, key))


def items(parent: Mapping[str, Any], key: str, path: str) -> Sequence[Any]:
    """The list under ``key``, empty where missing or null."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BoardError(f"{join(path, key)} must be a list, got {format_value(value)}")
    return value


def integer(parent: Mapping[str, Any], key: str, path: str, default: int | None = None) -> int:
    """The whole number under ``key``; without a default it must be there.

    >>> integer({"turn": 3}, "turn", "")
    3
    >>> integer({"x": "3"}, "x", "board.food[0]")
    Traceback (most recent call last):
    battlesnake_gym.boards.json_fields.BoardError: board.food[0].x must be a whole number, got '3'
    """
    value = parent.get(key)
    if value is None:
        if default is None:
            raise BoardError(f"{join(path, key)} is missing; give a whole number")
        return default
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BoardError(f"{join(path, key)} must be a whole number, got {format_value(value)}")
    return value


def string(parent: Mapping[str, Any], key: str, path: str, default: str | None = None) -> str:
    """The text under ``key``; without a default it must be there and not be empty."""
    value = parent.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (default is None and not value):
        got = "nothing" if value is None else format_value(value)
        raise BoardError(f"{join(path, key)} must be a text, got {got}")
    return value


def point(value: object, path: str) -> Point:
    """A cell ``{"x": ..., "y": ...}``."""
    if type(value) is dict:  # cells are most of a request, and nearly all of them are in order
        x, y = value.get("x"), value.get("y")
        if type(x) is int and type(y) is int:
            return x, y
    if not isinstance(value, Mapping):
        raise BoardError(
            f'{path} must be an object like {{"x": 0, "y": 0}}, got {format_value(value)}'
        )
    return integer(value, "x", path), integer(value, "y", path)


def points(parent: Mapping[str, Any], key: str, path: str) -> list[Point]:
    """The cells under ``key``, none where missing."""
    place = join(path, key)
    return [point(cell, f"{place}[{i}]") for i, cell in enumerate(items(parent, key, path))]


def sanitize_text(text: str, longest: int) -> str:
    """What can be shown of a stranger's text: no controls, no lone surrogates, not too long.

    >>> plain("a\\x1b[31mb\\ud800c", 6)
    'a[31mb'
    """
    return "".join(character for character in text if character.isprintable())[:longest]
