"""Forty typical mistakes, as docs/mistakes.md lists them: one line each, and exit status 2."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym.cli import main
from battlesnake_gym.common.command_line import MAX_LINE_CHARS, writable
from tests.parsers import parser_of

PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"
ROW = re.compile(r"^\| `(?P<typed>[^`]*)` \| (?P<fence>`+) ?(?P<told>.*?) ?(?P=fence) \|$", re.M)
MISTAKES = [(row["typed"], row["told"]) for row in ROW.finditer(PAGE.read_text())]
NEEDS_TRAINER = ("train", "evaluate", "runs export", "runs plot", "procgen")


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, str]]:
    """A port that somebody listens on, and one that nobody does while it is bound here."""
    with socket.create_server(("127.0.0.1", 0)) as used, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield {"PORT": str(used.getsockname()[1]), "FREE": str(free.getsockname()[1])}


def test_there_are_forty_of_them() -> None:
    assert len(dict(MISTAKES)) >= 40
    typed = [typed for typed, _ in MISTAKES]
    assert sum(any(one.startswith(name) for one in typed) for name in main.COMMANDS) >= 15


@pytest.mark.parametrize(("typed", "told"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_mistake_is_answered_in_one_line(
    typed: str,
    told: str,
    ports: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if typed.startswith(NEEDS_TRAINER):
        pytest.importorskip("ray", reason="needs the extra rllib")
    monkeypatch.chdir(tmp_path)
    for name, port in ports.items():
        typed, told = typed.replace(name, port), told.replace(name, port)
    try:
        status = main.main(shlex.split(typed))
    except SystemExit as ended:
        status = int(ended.code or 0)
    out, err = capsys.readouterr()
    assert (status, out, err) == (2, "", f"{told}\n")
    assert len(err) <= MAX_LINE_CHARS + 1


@pytest.mark.parametrize("command", [*main.COMMANDS])
def test_what_an_option_wants_is_told_in_words(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No function's name: of each option that is read by one, with a value that it cannot read."""
    parser = parser_of(command)
    plain = (None, Path, str, writable)
    options = [one for one in parser._actions if one.option_strings and one.type not in plain]
    for action in options:
        option = action.option_strings[-1]
        with pytest.raises(SystemExit):
            parser.parse_known_args([option, *["§"] * int(action.nargs or 1)])
        told = capsys.readouterr().err
        assert re.search(
            f"{option}:? (must be (a( whole)? number|NAME=NUMBER|JSON)|unknown class)", told
        ), told
