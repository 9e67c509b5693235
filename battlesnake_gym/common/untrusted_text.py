"""Text from strangers' files and from users' editors.

JSON may contain lone surrogates, which UTF-8 cannot encode. JSON may also contain control
characters, which terminals interpret and XML forbids. File names may contain bytes that are not
UTF-8. Windows editors begin a file with a byte order mark.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from pathlib import Path
from typing import Any

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_UNSAFE_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters except tab and newline, lone surrogates, and noncharacters."""


def replace_unsafe(text: str) -> str:
    r"""Replace the characters that terminals, XML and UTF-8 do not accept with U+FFFD.

    >>> replace_unsafe("a\x1b[31m\nb\ud800c")
    'a�[31m\nb�c'
    """
    return _UNSAFE_CHARACTERS.sub(_REPLACEMENT, text)


def parse_json(data: bytes | str, **options: Any) -> Any:
    r"""Parse a JSON document whose text may come from a stranger.

    Args:
        data: JSON text, or its bytes in UTF-8, UTF-16 or UTF-32.
        **options: Keyword arguments of ``json.loads``.

    Returns:
        The value. `replace_unsafe` is applied to each text.

    Raises:
        ValueError: If ``data`` is not JSON.
        RecursionError: If ``data`` is nested too deeply.

    >>> parse_json(r'{"name": "\ud83d hungry \u001b"}')
    {'name': '� hungry �'}
    """
    if isinstance(data, bytes):
        try:
            data = data.decode(json.detect_encoding(data), "surrogatepass")
        except UnicodeDecodeError as error:
            raise ValueError(f"its {error.encoding} text is damaged; save it as UTF-8") from error
    value = json.loads(data.removeprefix("\ufeff"), **options)
    # Other JSON contains only printable ASCII characters.
    unsafe = "\\" in data or "\x7f" in data or not data.isascii()
    return _replace_in_json(value) if unsafe else value


def _replace_in_json(value: Any) -> Any:
    if isinstance(value, str):
        return replace_unsafe(value)
    if isinstance(value, list):
        return [_replace_in_json(item) for item in value]
    if isinstance(value, dict):
        return {replace_unsafe(key): _replace_in_json(item) for key, item in value.items()}
    return value


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the content of a text file, with newlines as line ends.

    A byte order mark selects UTF-8 or UTF-16, and is removed.

    Raises:
        ValueError: If the text is not UTF-8.
        OSError: If the file cannot be read.
    """
    data = Path(path).read_bytes()
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} has byte {data[error.start]:#x} at offset {error.start}; save it as UTF-8"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def path_text(path: str | os.PathLike[str]) -> str:
    r"""Return a path as text for pages and messages.

    Bytes that are not UTF-8 become U+FFFD, so the text may not lead back to the file.

    >>> path_text("caf\udce9.jsonl")
    'caf�.jsonl'
    """
    return replace_unsafe(os.fspath(path))
