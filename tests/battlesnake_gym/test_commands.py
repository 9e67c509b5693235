"""The console command: help, JSON tables, colors and `play`."""

import io
import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from battlesnake_gym.cli import main, versions
from battlesnake_gym.commands import play_command
from battlesnake_gym.common import command_line
from battlesnake_gym.common.extras import MissingExtraError, load_module
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MAPS
from tests.parsers import parser_of


@pytest.mark.parametrize("name", main.COMMANDS)
def test_help_shows_defaults_once_without_format_codes(name: str) -> None:
    parser = parser_of(name)
    text = parser.format_help()
    assert parser.prog == f"battlesnake-gym {name}"
    for unwanted in ("%%", "%(", "(default: None)", "SUPPRESS", "default: []", "default: False"):
        assert unwanted not in text
    options = [line.split("--")[0] for line in text.split("  --")[1:]]
    assert all(option.count("(default:") < 2 for option in options)


def test_help_needs_no_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "battlesnake_rl.commands.procgen_rollout_command", None)
    assert main.main(["procgen", "rollout", "x", "--help"]) == 0
    assert "usage: battlesnake-gym procgen rollout" in capsys.readouterr().out
    assert main.main(["procgen", "rollout", "x"]) == 2


@pytest.mark.parametrize("package", ["torch", "ray", "yours"])
def test_package_that_a_running_command_misses_gives_one_line(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(argv: list[str]) -> int:
        raise ModuleNotFoundError(name=package)

    monkeypatch.setattr(main, "load_command", lambda name: SimpleNamespace(main=command))
    monkeypatch.setattr(versions, "required_packages", lambda: {"rllib": ["ray", "torch"]})
    if package == "yours":
        with pytest.raises(ModuleNotFoundError):
            main.main(["aws", "experiment"])
        return
    assert main.main(["aws", "experiment"]) == 2
    remedy = "pip install '.[rllib,sagemaker,sagemaker-simulator]' in a clone, or 'WHEEL[rllib,"
    assert remedy in capsys.readouterr().err


TABLES = [
    "snakes", "maps", "doctor", "snakes random hungry --duels 1", "maps royale",
]  # fmt: skip


@pytest.mark.parametrize("command", TABLES)
def test_tables_support_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([*command.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err == ""  # no progress bar in a pipe


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colors_need_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert command_line.colorize("x", "red", io.StringIO()) == "x"
    assert command_line.colorize("x", "red", Terminal()) == "\033[31mx\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert command_line.colorize("x", "red", Terminal()) == "x"


def test_maps_are_listed_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["maps"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == list(MAPS)
    assert main.main(["maps", *MAPS]) == 0
    pictures = capsys.readouterr().out
    assert pictures.count("\nA snake_0") == len(MAPS)
    assert "~" in pictures


Play = Callable[..., tuple[int, str, str]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Function that plays with typed lines, and returns the status, the output and the errors."""

    def call(typed: str, *words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        return main.main(["play", *map(str, words)]), *capsys.readouterr()

    return call


def test_play_reads_moves_from_a_pipe(play: Play, tmp_path: Path) -> None:
    path = tmp_path / "game.jsonl"
    options = "--seed", 3, "--board-size", 11, "--replay", path
    status, out, _ = play("up\nnonsense\nw\n\n", "safe-random", *options)
    assert status == 0
    assert re.search(r"turn 3.* standard.* standard", out)
    replay = Replay.load(path)
    assert [turn.moves["you"] for turn in replay.turns] == ["up", "up", "up"]
    assert [snake.name for snake in replay.first.snakes] == ["you", "safe-random"]


def test_a_solo_game_of_two_snakes_has_no_winner_and_no_analysis(
    play: Play, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "game.jsonl"
    options = "--ruleset", "solo", "--seed", 3, "--board-size", 7, "--replay", path
    assert "\nthe game is over\n" in play("up\n" * 7, "straight", *options)[1]
    assert main.main(["game", "coach", str(path), "--snake", "you"]) == 0
    assert "you lost none of these games" in capsys.readouterr().out


def test_play_rejects_a_move_time_that_no_snake_uses(play: Play) -> None:
    status, _, errors = play("q\nq\n", "hungry", "minimax@9", "--move-time", 5)
    assert status == 2
    assert "--move-time has no effect" in errors
    assert play("q\nq\n", "hungry", "minimax", "--move-time", 5)[0] == 0


def test_play_reports_a_snake_that_cannot_be_made(play: Play, tmp_path: Path) -> None:
    path = tmp_path / "faulty.py"
    code = "from battlesnake_gym import snakes\nsnakes.register('faulty', lambda seed: {}[seed])\n"
    path.write_text(code)
    status, _, errors = play("", path)
    assert status == 2
    assert "faulty.py, line 2: KeyError: 1" in errors


def test_play_reports_a_move_that_fails_and_saves_the_game(play: Play, tmp_path: Path) -> None:
    path, replay = tmp_path / "faulty.py", tmp_path / "game.jsonl"
    path.write_text("def move(state):\n    return {'move': ['up'][state['turn']]}\n")
    status, _, errors = play("w\n" * 12, path, "--seed", 1, "--replay", replay)
    assert status == 2
    assert "faulty.py, line 2: IndexError" in errors
    assert len(Replay.load(replay).turns) == 1


def test_play_offers_a_rematch_with_a_new_seed(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, _ = play("w\n" * 12 + "s\nr\nq\n", "hungry")
    assert status == 0
    seeds = list(dict.fromkeys(re.findall(r"seed (\d+)", out)))
    assert len(seeds) == 2
    assert Replay.load(tmp_path / f"game-{seeds[0]}.jsonl.gz").last.is_over()
    for text in ("w a s d", "rematch", "hungry won\n"):
        assert text in out


def test_a_rematch_keeps_the_saved_game(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = ("w\n" * 12 + "s\nr\n") * 2
    for options, name in ((("--replay", "a.jsonl"), "a{}.jsonl"), ((), "game-3{}.jsonl.gz")):
        assert play(typed, "hungry", "--seed", 3, *options)[0] == 0
        assert all(Replay.load(name.format(number)).last.is_over() for number in ("", "-2"))
    assert not Replay.load("a-3.jsonl").turns


def test_play_shows_only_what_the_view_radius_allows(play: Play, tmp_path: Path) -> None:
    path = tmp_path / "game.jsonl"
    options = "--seed", 3, "--view-radius", 1, "--replay", path
    status, out, _ = play("w\n" * 12, "hungry", *options)
    assert status == 0
    *shown, end = out.split("turn ")[1:]
    assert not re.search("^[^:]*B[^:]*A hungry", shown[0], re.MULTILINE)
    assert "B" not in shown[0].partition("A you")[0]
    assert "B hungry: visible segments: 0\n" in shown[0]
    assert "B" in end.partition("A you")[0]
    assert Replay.load(path).game.settings.view_radius == 1


def test_play_ignores_moves_into_the_neck_and_has_no_hidden_keys(
    play: Play, tmp_path: Path
) -> None:
    path = tmp_path / "game.jsonl"
    typed = "w\ns\nh\nj\nk\nl\nw\nq\n"
    assert play(typed, "safe-random", "--seed", 3, "--replay", path)[0] == 0
    assert [turn.moves["you"] for turn in Replay.load(path).turns] == ["up", "up"]


def test_play_reads_keys_of_a_windows_console(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter("\xe0H\0KD\r\x03")
    console = SimpleNamespace(getwch=typed.__next__)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setitem(sys.modules, "msvcrt", console)
    pressed = itertools.islice(play_command._read_keys(), 5)
    actions = ["up", "left", "right", "ahead", "quit"]
    assert [play_command.ACTIONS_BY_KEY[key] for key in pressed] == actions


def test_missing_system_module_is_not_reported_as_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    name = "battlesnake_server.commands.snakes_mcp_command"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingExtraError, match=r"Linux.* macOS"):
        load_module(name, "")


def test_doctor_names_missing_packages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = versions.installed_version

    def remove(package: str) -> None:
        monkeypatch.setattr(
            versions, "installed_version", lambda name: None if name == package else installed(name)
        )

    remove("flask")
    assert main.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    number = next(i for i, line in enumerate(lines) if "extra server" in line)
    assert lines[number].startswith("missing")
    assert "missing flask" in lines[number]
    assert "'.[server]'" in lines[number + 1]
    remove("numpy")
    assert main.main(["doctor"]) == 1


def test_doctor_names_the_package_that_slows_ray(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.1.0", None):
        monkeypatch.setattr(versions, "installed_version", lambda name, version=version: version)
        main.main(["doctor"])
        out = capsys.readouterr().out
        assert bool(re.search("slow +jsonschema.*rfc3987-syntax 1.1.0.*Ray", out)) == bool(version)
        assert ("pip uninstall rfc3987-syntax" in out) == bool(version)


def test_doctor_reports_what_plays_without_the_search(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "load_compiled_module", lambda importer, name: None)
    assert main.main(["doctor"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " search " in line]
    assert re.search("lookahead.* champion", line)


def test_missing_extension_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATTLESNAKE_GYM_EXTENSIONS", "/nope.py")
    assert main.main(["maps"]) == 2
    err = capsys.readouterr().err
    assert re.match(r"battlesnake-gym maps: .*BATTLESNAKE_GYM_EXTENSIONS.* /nope\.py\b", err)
    assert err.count("\n") == 1


def test_overview_is_short_and_groups_list_their_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.main(["--help"]) == 0
    overview = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out, re.M)
    assert len(overview) <= 16
    for group in {name.split()[0] for name in main.COMMANDS} - {*main.COMMANDS}:
        assert main.main([group, "--help"]) == 0
        listed = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out, re.M)
        assert {f"{group} {name}" for name in listed} <= {*main.COMMANDS}
        assert listed
