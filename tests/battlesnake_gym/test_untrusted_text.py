"""Text of strangers and of Windows editors: JSON, text files and file names."""

import codecs
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlesnake_gym.common.untrusted_text import parse_json, path_text, read_text
from tests.json_strategies import JUNK


@given(JUNK)
def test_parsed_text_can_be_shown_everywhere(value: object) -> None:
    parsed = parse_json(json.dumps({"value": value}))
    text = json.dumps(parsed, ensure_ascii=False)
    assert text.encode().decode() == text
    assert json.loads(json.dumps(parsed)).keys() == {"value"}
    assert all(word.isprintable() or word in "\n\t" or ord(word) > 0x9F for word in walk(parsed))


def walk(value: object) -> str:
    """Return all text of a JSON value."""
    if isinstance(value, dict):
        return "".join(walk([key, inner]) for key, inner in value.items())
    return "".join(map(walk, value)) if isinstance(value, list) else str(value)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn"))))
def test_printable_text_is_unchanged(text: str) -> None:
    for data in (json.dumps(text), json.dumps(text, ensure_ascii=False).encode()):
        assert parse_json(data) == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_of_windows_editors_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes('{"name":\r\n "größer 🐍"}\r\n'.encode(encoding))
    assert read_text(path) == '{"name":\n "größer 🐍"}\n'
    assert parse_json(path.read_bytes()) == parse_json(read_text(path)) == {"name": "größer 🐍"}


def test_other_encodings_are_rejected_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"note: gr\xf6\xdfer")
    with pytest.raises(ValueError, match=r"old\.txt.* 0xf6.* 8.* UTF-8"):
        read_text(tmp_path / "old.txt")
    (tmp_path / "cut.txt").write_bytes(codecs.BOM_UTF16_LE + b"a")
    with pytest.raises(ValueError, match="UTF-8"):
        read_text(tmp_path / "cut.txt")


def test_names_that_are_not_utf_8_have_a_text() -> None:
    assert path_text("caf\udce9/\x1b]0;title\x07.jsonl") == "caf�/�]0;title�.jsonl"
