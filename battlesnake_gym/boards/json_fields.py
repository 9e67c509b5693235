"""Typed access to the fields of untrusted JSON.

Errors contain the JSON path. Missing and null fields take their default value. A field of the wrong
type is an error, because a guess could lead to a wrong move without any warning.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from battlesnake_gym.common.untrusted_text import parse_json
from battlesnake_gym.rules.state import Point

MAX_JSON_BYTES = 1 << 16
"""Maximum size of a JSON or YAML file about a snake or a league, in bytes."""


class BoardError(ValueError):
    """Error for an unreadable or unplayable board, request or text."""


_BOUNDED_REPR = reprlib.Repr()
_BOUNDED_REPR.maxstring = _BOUNDED_REPR.maxlong = _BOUNDED_REPR.maxother = 80
_BOUNDED_REPR.maxlist = _BOUNDED_REPR.maxdict = 20


def format_value(value: object) -> str:
    """Return ``value`` for an error message, shortened to 60 characters.

    >>> format_value("x" * 1000)[:10], len(format_value("x" * 1000))
    ("'xxxxxxxxx", 60)
    >>> format_value([[[[[[[[1]]]]]]]])
    '[[[[[[[...]]]]]]]'
    """
    # Text is shortened before quotes are added. Lists and objects are formatted to a limited depth.
    text = repr(value[:60]) if isinstance(value, str) else _BOUNDED_REPR.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_small_json(data: bytes) -> Any:
    """Parse a JSON document of at most `MAX_JSON_BYTES` bytes.

    Raises:
        ValueError: If ``data`` is too long, nested too deeply or not JSON.
    """
    if len(data) > MAX_JSON_BYTES:
        raise BoardError(f"more than {MAX_JSON_BYTES} bytes")
    try:
        return parse_json(data)
    except RecursionError:
        raise BoardError("nested too deeply") from None


def join_path(path: str, key: str) -> str:
    """Return the JSON path of ``key`` below ``path``.

    The root has the path "".
    """
    return f"{path}.{key}" if path else key


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """Return ``value`` as a JSON object, or an empty object for null."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BoardError(f"{path or 'request'} must be a JSON object, got {format_value(value)}")
    return value


def child(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return the object under ``key``, or an empty object if ``key`` is missing."""
    return mapping(parent.get(key), join_path(path, key))


def items(parent: Mapping[str, Any], key: str, path: str) -> Sequence[Any]:
    """Return the list under ``key``, or an empty list if ``key`` is missing or null."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BoardError(f"{join_path(path, key)} must be a list, got {format_value(value)}")
    return value


def objects(parent: Mapping[str, Any], key: str, path: str) -> list[tuple[Mapping[str, Any], str]]:
    """Return the objects of the list under ``key``, each with its JSON path."""
    values, list_path = items(parent, key, path), join_path(path, key)
    paths = [f"{list_path}[{i}]" for i in range(len(values))]
    return [(mapping(value, at), at) for value, at in zip(values, paths, strict=True)]


def integer(parent: Mapping[str, Any], key: str, path: str, default: int | None = None) -> int:
    """Return the integer under ``key``, which is required if ``default`` is None.

    >>> integer({"turn": 3}, "turn", "")
    3
    >>> integer({"x": "3"}, "x", "board.food[0]")
    Traceback (most recent call last):
    battlesnake_gym.boards.json_fields.BoardError: board.food[0].x must be a whole number, got '3'
    """
    value = parent.get(key)
    if value is None:
        if default is None:
            raise BoardError(f"{join_path(path, key)} is missing; give a whole number")
        return default
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BoardError(
            f"{join_path(path, key)} must be a whole number, got {format_value(value)}"
        )
    return value


MAX_INT32 = (1 << 31) - 1
"""Maximum absolute value of an integer in a request, and of a rule setting.

Larger integers could overflow.
"""


def bounded_integer(
    parent: Mapping[str, Any],
    key: str,
    path: str,
    low: int,
    high: int | None = None,
    default: int | None = None,
) -> int:
    """Return the integer under ``key``, which must be between ``low`` and ``high``.

    >>> bounded_integer({"x": 0}, "x", "", 1)
    Traceback (most recent call last):
    battlesnake_gym.boards.json_fields.BoardError: x must be at least 1, got 0
    """
    value = integer(parent, key, path, default)
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise BoardError(f"{join_path(path, key)} must be {limits}, got {format_value(value)}")
    return value


def string(parent: Mapping[str, Any], key: str, path: str, default: str | None = None) -> str:
    """Return the text under ``key``, which must not be empty if ``default`` is None."""
    value = parent.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (default is None and not value):
        got = "nothing" if value is None else format_value(value)
        raise BoardError(f"{join_path(path, key)} must be text, got {got}")
    return value


def point(value: object, path: str) -> Point:
    """Convert a JSON object ``{"x": ..., "y": ...}`` to a cell (x, y)."""
    # This fast path handles valid cells, which are the largest part of a request.
    if type(value) is dict:
        x, y = value.get("x"), value.get("y")
        if type(x) is int and type(y) is int:
            return x, y
    if not isinstance(value, Mapping):
        raise BoardError(
            f'{path} must be an object like {{"x": 0, "y": 0}}, got {format_value(value)}'
        )
    return integer(value, "x", path), integer(value, "y", path)


def points(parent: Mapping[str, Any], key: str, path: str) -> list[Point]:
    """Return the cells under ``key``, or an empty list if ``key`` is missing."""
    list_path = join_path(path, key)
    return [point(cell, f"{list_path}[{i}]") for i, cell in enumerate(items(parent, key, path))]


def sanitize_text(text: str, max_chars: int) -> str:
    r"""Return the printable characters of ``text``, at most ``max_chars`` characters.

    Control characters and lone surrogates are removed.

    >>> sanitize_text("a\x1b[31mb\ud800c", 6)
    'a[31mb'
    """
    return "".join(character for character in text if character.isprintable())[:max_chars]
