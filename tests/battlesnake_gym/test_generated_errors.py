"""Generated mistakes: every option of every command with invalid values."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.cli import main
from battlesnake_gym.common.command_line import MAX_LINE_CHARS, MAX_SHORT_HELP_OPTIONS, Parser
from battlesnake_gym.common.extras import MissingExtraError
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from tests.parsers import parser_of

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


@pytest.fixture
def game_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a game, a league file and a curve."""
    monkeypatch.chdir(tmp_path)
    replay = Replay(Board.new(7, 7, 2, game=Game(seed=1)))
    replay.append({"snake_0": "up", "snake_1": "up"})
    replay.save(tmp_path / "game.jsonl")
    snakes = "{champion: champion, hungry: hungry}"
    Path("league.yaml").write_text(f"league: {{name: one, boards: [{{}}]}}\nsnakes: {snakes}\n")
    Path("progress.csv").write_text("time_total_s,episode_reward_mean,episode_len_mean\n1,2,3\n")
    return tmp_path


def status_of(typed: list[str]) -> int:
    """Run a command and return its exit status."""
    try:
        return main.main(typed)
    except SystemExit as error:
        return int(error.code or 0)


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
    parser = parser_of(command)
    files_before = sorted(game_dir.rglob("*"))
    for words in cases(parser):
        typed = [*command.split(), *GOOD.get(command, "").split(), *words]
        status = status_of(typed)
        out, err = capsys.readouterr()
        assert (status, out, err.count("\n")) == (2, "", 1), (typed, status, out, err)
        assert len(err) <= MAX_LINE_CHARS + 1, (typed, err)
        name = words[0].partition("=")[0].strip("-")
        expected = {
            name,
            name.replace("-", "_"),
            name.rpartition("-")[2],
            words[-1],
            "width"[: 9 * (name == "board-size")],
        }
        assert any(word in err for word in expected), (typed, err)
        assert sorted(game_dir.rglob("*")) == files_before, typed


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
    status = status_of([*command.split(), "no/such.one"])
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1), (status, out, err)
    assert "no/such.one" in err or "unexpected argument" in err, err


def test_there_are_at_least_200_mistakes() -> None:
    count = 0
    for command in main.COMMANDS:
        with contextlib.suppress(MissingExtraError):
            count += len(cases(main.load_command(command).parser()))
    assert count >= 200


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
