"""Error messages of typical and generated mistakes: one line, with the field and the remedy."""

import argparse
import json
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.cli import main
from battlesnake_gym.common.command_line import MAX_LINE_CHARS, MAX_SHORT_HELP_OPTIONS, Parser
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_heuristics.analysis import scenarios
from battlesnake_heuristics.analysis.scenarios import BUILTIN_SCENARIOS
from tests.parsers import parser_of

DATA = Path(__file__).parents[1] / "data" / "mistakes.json"
"""Command lines with a mistake, and words that the message must contain.

PORT stands for a port that another program uses, FREE for a port that no program uses.
"""

MISTAKES: list[dict[str, Any]] = json.loads(DATA.read_text())
NEEDS_TRAINER = ("train", "evaluate", "runs export", "runs plot", "procgen", "aws experiment")


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, str]]:
    """A port in use, and a port that is bound here but does not listen."""
    with socket.create_server(("127.0.0.1", 0)) as used, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield {"PORT": str(used.getsockname()[1]), "FREE": str(free.getsockname()[1])}


@pytest.fixture
def game_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a game, a league file, a curve and damaged files."""
    monkeypatch.chdir(tmp_path)
    replay = Replay(Board.new(7, 7, 2, game=Game(seed=1)))
    replay.append({"snake_0": "up", "snake_1": "up"})
    replay.save(tmp_path / "game.jsonl")
    snakes = "{champion: champion, hungry: hungry}"
    Path("league.yaml").write_text(f"league: {{name: one, boards: [{{}}]}}\nsnakes: {snakes}\n")
    Path("empty_list.yaml").write_text("name: one\nsnakes: []\n")
    Path("empty.json").write_text("[]")
    Path("my_tests.txt").write_text(scenarios.load(BUILTIN_SCENARIOS[0])[0].to_text())
    Path("repeated.yaml").write_text("lr: 1\nlr: 2\n")
    Path("nested.yaml").write_text("experiment: hill-vanilla\n")
    Path("damaged").mkdir()
    Path("folder.gif").mkdir()
    Path("long.csv").write_text(f"a\n{'1' * 200_000}\n")
    Path("damaged/metadata.json").write_text("{}")
    Path("notes.txt").write_text("mine\n")
    Path("lone.onnx").write_bytes(b"without its .json file")
    Path("latin.txt").write_bytes(b"scenario: caf\xe9")
    Path("utf16.jsonl").write_text('{"a": 1}\n', "utf-16-le")
    Path("async.py").write_text("async def move(state):\n    return 'up'\n")
    Path("empty.py").write_text("x = 1\n")
    Path("plain.py").write_text("def move(state):\n    return 'up'\n")
    Path("progress.csv").write_text("time_total_s,episode_reward_mean,episode_len_mean\n1,2,3\n")
    return tmp_path


def status_of(typed: list[str]) -> int:
    """Run a command and return its exit status."""
    try:
        return main.main(typed)
    except SystemExit as error:
        return int(error.code or 0)


def message_of(typed: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command with a mistake, which prints one line and writes no file; return the line."""
    files_before = sorted(folder.rglob("*"))
    status = status_of(typed)
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1), (typed, status, out, err)
    assert len(err) <= MAX_LINE_CHARS + 1, (typed, err)
    assert sorted(folder.rglob("*")) == files_before, typed
    return err


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake["command"] for mistake in MISTAKES])
def test_message_names_field_value_and_remedy(
    mistake: dict[str, Any],
    ports: dict[str, str],
    game_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, words = mistake["command"], mistake["words"]
    if command.startswith(NEEDS_TRAINER):
        pytest.importorskip("ray", reason="needs the extra rllib")
    for name, port in ports.items():
        command = command.replace(name, port)
        words = [word.replace(name, port) for word in words]
    message = message_of(shlex.split(command), game_dir, capsys)
    assert message.startswith("battlesnake-gym")
    for word in words:
        assert word in message


@pytest.mark.parametrize("command", [*main.COMMANDS])
def test_message_describes_the_type_of_an_option(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message must not contain the name of the parsing function."""
    parser = parser_of(command)
    free_text = ("parse_host", "output_dir", "output_file", "job_dir")  # types that accept any text
    options = [
        action
        for action in parser._actions
        if action.option_strings
        and action.type not in (None, Path, str)
        and getattr(action.type, "__name__", "") not in free_text
    ]
    for action in options:
        option = action.option_strings[-1]
        count = action.nargs if isinstance(action.nargs, int) else 1
        with pytest.raises(SystemExit):
            parser.parse_known_args([option, *["§"] * count])
        message = capsys.readouterr().err
        assert re.search(
            rf"{option}\b.* (number|NAME=NUMBER|NAME=VALUE|NAME=PATH|JSON|network)\b", message
        ), message


ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "server" / "battlesnake_server" / "default_policy" / "policy.onnx"

GOOD = {
    "play": "hungry",
    "arena": "hungry cautious --games 1 --max-turns 2",
    "ladder": "hungry --max-minutes 0",
    "gauntlet": "league.yaml --games 1",
    "league": "league.yaml --games 1",
    "serve": "hungry",
    "pack": "--snake hungry",
    "snakes check": "hungry",
    "snakes mcp": ".",
    "train": "--minutes 1 --dry-run",
    "evaluate": f"{SHIPPED} --games 1",
    "runs": "runs",
    "runs plot": "progress.csv",
    "runs export": "runs",
    "game watch": "game.jsonl",
    "game analyze": "game.jsonl",
    "game coach": "game.jsonl",
    "game eval": "game.jsonl",
    "game puzzles": "game.jsonl",
    "game export": "-o game.gif game.jsonl",
    "aws deploy": "snake.zip",
    "aws simulate": f"train-mabs.py --source-dir {ROOT / 'rllib_src'}",
    "procgen train": "--minutes 1 --dry-run",
    "procgen rollout": "runs",
}
"""Valid arguments of each command, to which a mistake is added."""

NUMBERS = ("-1", "nan", "inf", "text", "1.5e400", "")
NEGATIVE = ("--sprt", "--hazard-damage-per-turn")
"""Options for which -1 is valid."""

NO_SUCH_FILE = ("--policy", "--rules", "--evaluation", "--layer", "--start-from", "--network",
                "--experiment", "--config-file", "--channels", "--source-dir")  # fmt: skip
NAMES = ("--ruleset", "--map", "--snake", "--strategy", "--opponents", "--filters", "--clock",
         "--algorithm", "--observation", "--rewards", "--action-mask", "--policy-sharing", "--env",
         "--env-name", "--columns", "--color", "--allow-networks", "--levels")  # fmt: skip
DIRECTORIES = ("--replays", "--folder", "--fetch-dir", "--video-dir")
TRAINING_NUMBERS = (
    "--num-iters", "--minutes", "--cpu-minutes", "--driver-cpu-minutes", "--env-steps",
    "--checkpoint-minutes",
    "--num-env-runners", "--num-snakes", "--board-size", "--frame-stack",
    "--rl-join-timeout-minutes", "--seed",
)  # fmt: skip
"""Numeric hyperparameters, whose type the parser does not know."""


def mistakes_of(action: argparse.Action) -> Iterator[list[str]]:
    """Yield the words of each mistake with an option."""
    flags = action.option_strings[::-1]
    option = next((flag for flag in flags if flag.startswith("--")), flags[0])
    if action.nargs == 0:
        yield [f"{option}=5"]
        return
    if action.nargs not in ("*", "?"):
        yield [option]
    if getattr(action.type, "__name__", "") in ("int", "float", "milliseconds", "size") or (
        option in TRAINING_NUMBERS and action.type is None
    ):
        for value in NUMBERS:
            if value != "-1" or option not in NEGATIVE:
                yield [f"{option}={value}"] if not action.nargs else [option, value, value]
    if action.choices or option in (*NAMES, *NO_SUCH_FILE):
        yield [option, "no/such.one"]
    if option in DIRECTORIES:
        yield [option, "game.jsonl"]


def cases(parser: Parser) -> list[list[str]]:
    options = [
        action for action in parser._actions if action.option_strings and action.dest != "help"
    ]
    return [
        words
        for action in options
        if action.option_strings[0] != "--help-all"
        for words in mistakes_of(action)
    ]


@pytest.mark.parametrize("command", main.COMMANDS)
def test_mistake_prints_one_line_and_writes_no_file(
    command: str, game_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in cases(parser_of(command)):
        typed = [*command.split(), *GOOD.get(command, "").split(), *words]
        message = message_of(typed, game_dir, capsys)
        name = words[0].partition("=")[0].strip("-")
        expected = {name, name.replace("-", "_"), name.rpartition("-")[2], words[-1]}
        expected |= {"width"} if name == "board-size" else set()
        assert any(word in message for word in expected), (typed, message)


@pytest.mark.parametrize(
    "typed",
    ["game scenarios none.json", "game scenarios none.txt", "runs none",
     "game puzzles none", "game coach none --snake mine", "runs none --report"],
)  # fmt: skip
def test_commands_without_input_fail(typed: str, game_dir: Path) -> None:
    Path("none").mkdir()
    Path("none.json").write_text("[]")
    Path("none.txt").touch()
    assert status_of(typed.split()) == 2


@pytest.mark.parametrize("command", sorted({*GOOD} - {"game export"}))  # it reads its input first
def test_missing_file_prints_one_line(
    command: str, game_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser_of(command)  # Skip the test if the packages of the command are not installed.
    message = message_of([*command.split(), "no/such.one"], game_dir, capsys)
    assert "no/such.one" in message or "unexpected argument" in message


@pytest.mark.parametrize("command", main.COMMANDS)
def test_help_is_short_and_help_all_is_complete(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parser_of(command)
    known = {flag.option_strings[-1] for flag in parser.visible_options()}
    for words, minimum, maximum in (
        ("--help", 1, MAX_SHORT_HELP_OPTIONS),
        ("--help-all", len(known), 100),
    ):
        with pytest.raises(SystemExit):
            main.main([*command.split(), words])
        out = capsys.readouterr().out
        shown = {one for one in known if re.search(rf"^  (-.*)?{one}\b(?!-)", out, re.M)}
        assert min(minimum, len(known)) <= len(shown) <= maximum
