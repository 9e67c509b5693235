"""Standard streams that are closed, full or of an encoding that lacks characters."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from battlesnake_gym.cli import main
from tests.processes import COMMAND, run

PROGRAM = shlex.join(COMMAND)


def shell(line: str, **more: str) -> tuple[int, str, str]:
    """Run a line of bash; return its status, output and errors."""
    done = run("bash", "-c", f"set -o pipefail; {line}", env=os.environ | more)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "status", "error"),
    [
        ("maps royale --turns 60 | head -0", 141, ""),
        ("snakes | head -0", 141, ""),
        (
            "snakes > /dev/full",
            2,
            "battlesnake-gym snakes: .*no space left on device",
        ),
        ("--version > /dev/full", 2, "battlesnake-gym: .*no space left on device"),
        ("maps --help > /dev/full", 2, "battlesnake-gym maps: .*no space left on device"),
        (
            "league --print-example > /dev/full",
            2,
            "battlesnake-gym league: .*no space left on device",
        ),
        ("snakes >&-", 2, "battlesnake-gym snakes: .*bad file descriptor"),
        ("snakes --json >&-", 2, "battlesnake-gym snakes: .*bad file descriptor"),
        ("snakes 0<&- >&- 2>&-", 2, ""),
        ("play hungry <&-", 0, ""),
    ],
)
def test_unusable_stream_ends_with_one_line(line: str, status: int, error: str) -> None:
    found, _, errors = shell(f"{PROGRAM} {line}", PYTHONUNBUFFERED="1")
    assert found == status
    assert len(errors.splitlines()) == bool(error), errors
    assert re.match(error, errors)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_characters_that_cannot_be_written_are_replaced(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from battlesnake_gym import snakes\n"
        "def make(seed): ...\n"
        "make.__doc__ = 'Ün\\U0001f40d\\ud83d'\n"
        "snakes.register('mine', make)\n"
    )
    done = run(
        *COMMAND, "snakes", path, env=os.environ | {"PYTHONIOENCODING": encoding},
        encoding=encoding,
    )  # fmt: skip
    kept = "Ün\U0001f40d\ud83d".encode(encoding, "replace").decode(encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"  {kept}\n")


def test_json_is_valid_whatever_a_snake_prints(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import os\n"
        "from battlesnake_gym import snakes\n"
        "print('loaded')\n"
        "os.system('echo child')\n"
        "def make(seed):\n"
        "    'Plays.'\n"
        "snakes.register('mine', make)\n"
    )
    done = run(*COMMAND, "snakes", path, "--json", check=True)
    assert [snake["description"] for snake in json.loads(done.stdout)] == ["Plays."]
    assert sorted(done.stderr.split()) == ["child", "loaded"]


def test_write_error_of_a_command_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(words: list[str]) -> int:
        (tmp_path / "missing" / "a.txt").write_text("")
        return 0

    monkeypatch.setattr("battlesnake_gym.commands.doctor_command.main", fail)
    assert main.main(["doctor"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"battlesnake-gym doctor: {tmp_path}/missing/a.txt: no such file")


@pytest.mark.parametrize("words", ["help play", "play --help"])
def test_help_is_a_command(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main.main(words.split())
    assert capsys.readouterr().out.startswith("usage: battlesnake-gym play")
    assert main.main(["help"]) == 0
    assert re.search(r"^usage: battlesnake-gym COMMAND.*\n  play ", capsys.readouterr().out, re.S)
