"""Error messages of typical mistakes: one line with the field, the value and the remedy."""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.cli import main
from battlesnake_gym.common.command_line import MAX_LINE_CHARS
from tests.parsers import parser_of

DATA = Path(__file__).parents[1] / "data" / "mistakes.json"
"""Command lines with a mistake, their exit status, and words that the message must contain.

PORT stands for a port that another program uses, FREE for a port that no program uses.
"""

MISTAKES: list[dict[str, Any]] = json.loads(DATA.read_text())
NEEDS_TRAINER = ("train", "evaluate", "runs export", "runs plot", "procgen")


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, str]]:
    """A port in use, and a port that is bound here but does not listen."""
    with socket.create_server(("127.0.0.1", 0)) as used, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield {"PORT": str(used.getsockname()[1]), "FREE": str(free.getsockname()[1])}


def test_mistakes_cover_many_commands() -> None:
    commands = [mistake["command"] for mistake in MISTAKES]
    assert len(set(commands)) >= 40
    covered = [name for name in main.COMMANDS if any(c.startswith(name) for c in commands)]
    assert len(covered) >= 15


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake["command"] for mistake in MISTAKES])
def test_message_names_field_value_and_remedy(
    mistake: dict[str, Any],
    ports: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, words = mistake["command"], mistake["words"]
    if command.startswith(NEEDS_TRAINER):
        pytest.importorskip("ray", reason="needs the extra rllib")
    monkeypatch.chdir(tmp_path)
    for name, port in ports.items():
        command = command.replace(name, port)
        words = [word.replace(name, port) for word in words]
    try:
        status = main.main(shlex.split(command))
    except SystemExit as error:
        status = int(error.code or 0)
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (mistake["status"], "", 1), err
    assert err.startswith("battlesnake-gym")
    assert len(err) <= MAX_LINE_CHARS + 1
    for word in words:
        assert word in err


@pytest.mark.parametrize("command", [*main.COMMANDS])
def test_message_describes_the_type_of_an_option(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message must not contain the name of the parsing function."""
    parser = parser_of(command)
    free_text = ("parse_host", "output_dir", "output_file")  # types that accept any text
    options = [
        action
        for action in parser._actions
        if action.option_strings
        and action.type not in (None, Path, str)
        and getattr(action.type, "__name__", "") not in free_text
    ]
    for action in options:
        option = action.option_strings[-1]
        with pytest.raises(SystemExit):
            parser.parse_known_args([option, *["§"] * int(action.nargs or 1)])
        message = capsys.readouterr().err
        assert re.search(
            rf"{option}\b.* (number|NAME=NUMBER|NAME=VALUE|JSON|network)\b", message
        ), message
