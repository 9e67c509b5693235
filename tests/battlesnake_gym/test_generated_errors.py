"""Mistakes made of the parsers: each option of each command with values that it cannot have."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.cli import main
from battlesnake_gym.common.command_line import MAX_LINE_CHARS, MAX_SHORT_HELP_FLAGS, Parser
from battlesnake_gym.common.extras import MissingExtraError
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from tests.parsers import parser_of

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "server" / "battlesnake_server" / "default_policy" / "policy.onnx"

GOOD = {
    "play": "hungry",
    "arena": "hungry cautious --games 1 --max-turns 2",
    "ladder": "hungry --minutes 0",
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
"""Words with which a command would work, but for the mistake."""

NUMBERS = ("-1", "nan", "inf", "text", "1.5e400", "")
NEGATIVE = ("--sprt", "--hazard-damage-per-turn")
"""Options of which -1 is no mistake."""

NO_SUCH_FILE = ("--policy", "--rules", "--evaluation", "--layer", "--start-from", "--network",
                "--experiment", "--config-file", "--channels", "--source-dir")  # fmt: skip
NAMES = ("--ruleset", "--map", "--snake", "--strategy", "--opponents", "--heuristics", "--clock",
         "--algorithm", "--observation", "--rewards", "--action-mask", "--policies", "--env",
         "--env-name", "--columns", "--color", "--allow-addresses", "--levels")  # fmt: skip
FOLDERS = ("--replays", "--folder", "--video-dir")
VALUES = ("--num-iters", "--minutes", "--cpu-minutes", "--env-steps", "--checkpoint-minutes",
          "--num-env-runners", "--num-snakes", "--board-size", "--frame-stack", "--rl-join-timeout-minutes",
          "--seed")  # fmt: skip
"""Options of a training that are numbers, which its parser does not know."""


def values_of(action: argparse.Action) -> Iterator[list[str]]:
    """What is typed behind an option, each a mistake."""
    option = next(one for one in action.option_strings[::-1] if one.startswith("--"))
    if action.nargs == 0:
        yield [f"{option}=5"]
        return
    if action.nargs not in ("*", "?"):
        yield [option]
    if getattr(action.type, "__name__", "") in ("int", "float", "milliseconds", "size") or (
        option in VALUES and action.type is None
    ):
        for value in NUMBERS:
            if value != "-1" or option not in NEGATIVE:
                yield [f"{option}={value}"] if not action.nargs else [option, value, value]
    if action.choices or option in (*NAMES, *NO_SUCH_FILE):
        yield [option, "no/such.one"]
    if option in FOLDERS:
        yield [option, "game.jsonl"]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a game in it."""
    monkeypatch.chdir(tmp_path)
    replay = Replay(Board.new(7, 7, 2, game=Game(seed=1)))
    replay.append({"snake_0": "up", "snake_1": "up"})
    replay.save(tmp_path / "game.jsonl")
    snakes = "{champion: champion, hungry: hungry}"
    Path("league.yaml").write_text(f"league: {{name: one, boards: [{{}}]}}\nsnakes: {snakes}\n")
    Path("progress.csv").write_text("time_total_s,episode_reward_mean,episode_len_mean\n1,2,3\n")
    return tmp_path


def status_of(typed: list[str]) -> int:
    """How the command ends."""
    try:
        return main.main(typed)
    except SystemExit as ended:
        return int(ended.code or 0)


def cases(parser: Parser) -> list[list[str]]:
    options = [one for one in parser._actions if one.option_strings and one.dest != "help"]
    return [words for one in options if one.option_strings[0] != "--help-all"
            for words in values_of(one)]  # fmt: skip


@pytest.mark.parametrize("command", main.COMMANDS)
def test_each_is_one_line_and_writes_nothing(
    command: str, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parser_of(command)
    before = sorted(desk.rglob("*"))
    for words in cases(parser):
        typed = [*command.split(), *GOOD.get(command, "").split(), *words]
        status = status_of(typed)
        out, err = capsys.readouterr()
        assert (status, out, err.count("\n")) == (2, "", 1), (typed, status, out, err)
        assert len(err) <= MAX_LINE_CHARS + 1, (typed, err)
        name = words[0].partition("=")[0].strip("-")
        about = {
            name,
            name.replace("-", "_"),
            name.rpartition("-")[2],
            words[-1],
            "width"[: 9 * (name == "size")],
        }
        assert any(one in err for one in about), (typed, err)
        assert sorted(desk.rglob("*")) == before, typed


@pytest.mark.parametrize(
    "typed",
    ["game scenarios none.json", "game scenarios none.txt", "runs none",
     "game puzzles none", "game coach none --snake mine", "runs none --report"],
)  # fmt: skip
def test_where_nothing_is_checked_nothing_passes(typed: str, desk: Path) -> None:
    Path("none").mkdir()
    Path("none.json").write_text("[]")
    Path("none.txt").touch()
    assert status_of(typed.split()) == 2


@pytest.mark.parametrize("command", sorted({*GOOD} - {"game export"}))  # which names two
def test_a_file_that_is_not_there_is_one_line(
    command: str, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = status_of([*command.split(), "no/such.one"])
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1), (status, out, err)
    assert "no/such.one" in err or "unexpected argument" in err, err


def test_there_are_two_hundred_of_them() -> None:
    made = 0
    for command in main.COMMANDS:
        with contextlib.suppress(MissingExtraError):
            made += len(cases(main.load(command).parser()))
    assert made >= 200


@pytest.mark.parametrize("command", main.COMMANDS)
def test_help_shows_a_dozen_options_and_all_of_them_where_asked(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parser_of(command)
    known = {flag.option_strings[-1] for flag in parser.flags()}
    for words, least, most in (
        ("--help", 1, MAX_SHORT_HELP_FLAGS),
        ("--help-all", len(known), 100),
    ):
        with pytest.raises(SystemExit):
            main.main([*command.split(), words])
        out = capsys.readouterr().out
        shown = {one for one in known if re.search(rf"^  (-.*)?{one}\b(?!-)", out, re.M)}
        assert min(least, len(known)) <= len(shown) <= most
