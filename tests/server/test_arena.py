"""The arena command, from its arguments to its table."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.replays.replay import Replay
from battlesnake_server.commands import arena_command
from tests.processes import COMMAND, run
from tests.server import misbehaving_snakes

pytestmark = pytest.mark.usefixtures("in_own_folder")


def results(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Run the arena; return its JSON output by snake."""
    assert arena_command.main([*arguments, "--json", "--jobs=1"]) == 0
    return {line["snake"]: line for line in json.loads(capsys.readouterr().out)}


SMALL = ("--board-size=7", "--max-turns=60")


def test_urls_names_and_policies_play_together(
    cautious: str, policy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replays = Path("replays")
    lines = results(
        capsys, f"{cautious}/base?x=1", f"mine={policy_file}", "hungry", "--games=3",
        f"--replays={replays}", "--max-turns=100", "--timeout=5000",
    )  # fmt: skip
    assert set(lines) == {f"{cautious}/base?x=1", "mine", "hungry"}
    for line in lines.values():
        assert line["games"] == 3
        assert line["problems"] == {}
        assert line["p99"] < 5000
        assert sum(line["endings"].values()) == 3
    assert len(list(replays.iterdir())) == 3
    assert all(Replay.load(path).last.turn > 1 for path in replays.iterdir())


def test_a_round_robin_is_played_in_parallel_and_printed_as_a_table() -> None:
    amount = ("--num-snakes=2", "--games=2", "--jobs=2")
    done = run(*COMMAND, "arena", "hungry", "cautious", "random", *amount, *SMALL)
    assert done.returncode == 0, done.stderr
    heading, *rows = done.stdout.splitlines()
    assert heading.split()[0] == "snake"
    assert sorted(row.split()[0] for row in rows) == ["cautious", "hungry", "random"]
    assert rows[-1].startswith("random")


def test_a_tournament_is_resumed_and_extended(capsys: pytest.CaptureFixture[str]) -> None:
    duel = ("hungry", "cautious", *SMALL)
    first = results(capsys, *duel, "--games=2")
    assert first["hungry"]["games"] == 2
    replays = Path("replays")
    grown = results(capsys, *duel, "--games=5", "--resume", f"--replays={replays}")
    assert grown["hungry"]["games"] == 5
    assert len(list(replays.iterdir())) == 3, "only the missing ones were played"
    again = results(capsys, *duel, "--games=5", "--resume")
    assert again == grown
    other = results(capsys, *duel, "--games=1", "--resume", "--seed=2")
    assert other["hungry"]["games"] == 1, "other settings are another tournament"
    fresh = results(capsys, *duel, "--games=1")
    assert fresh["hungry"]["games"] == 1, "without --resume a new tournament starts"


OWN_SNAKE = """
from battlesnake_gym import snakes

def make(seed):
    def play(board, seconds=None):
        {body}
    return play

snakes.register("own", make)
"""


def own_snake(body: str) -> str:
    path = Path("own.py").absolute()  # Factories are cached by path.
    path.write_text(OWN_SNAKE.format(body=body))
    return str(path)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return [][board.turn]", "IndexError: list index out of range"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
@pytest.mark.parametrize(
    ("opponent", "limit"), [("hungry", "--timeout=5000"), ("minimax", "--nodes=5")]
)
def test_a_snake_that_raises_on_every_move_is_named_with_its_line_and_fails_the_arena(
    body: str, error: str, opponent: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [f"mine={own_snake(body)}", opponent, *SMALL, limit, "--games=2"]
    assert arena_command.main([*call, "--jobs=1"]) == 1
    done = capsys.readouterr()
    assert done.out.count(f"own.py, line 6: {error}\n") == 1
    assert "\nmine failed" in done.out
    assert "Traceback" not in done.err
    # The games are stored, so the same tournament fails again.
    assert arena_command.main([*call, "--jobs=1", "--json", "--resume"]) == 1
    mine = next(line for line in json.loads(capsys.readouterr().out) if line["snake"] == "mine")
    assert mine["problems"] == {"exception": mine["moves"]}


def test_a_snake_that_fails_on_few_moves_or_returns_text_does_not_fail_the_arena(
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = "return (board.safe_moves() or ['up'])[0] if board.turn else 1 / 0"
    call = [own_snake(body), "--num-snakes=1", "--games=1", "--jobs=1"]
    assert arena_command.main([*call, "--max-turns=60", "--seed=3"]) == 0
    assert "line 6: ZeroDivisionError" in capsys.readouterr().out


def test_resuming_plays_games_again_whose_replay_is_empty_or_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    replays = Path("replays")
    call = ["hungry", "random", "--games=4", *SMALL, f"--replays={replays}", "--jobs=1"]
    assert arena_command.main(call) == 0
    first, second, *others = sorted(replays.iterdir())
    kept = [path.read_bytes() for path in others]
    first.write_bytes(b"")  # what a power cut leaves
    second.unlink()
    capsys.readouterr()
    assert arena_command.main([*call, "--resume"]) == 0
    assert "2 games" in capsys.readouterr().err
    again = sorted(replays.iterdir())
    assert len(again) == 4
    assert all(Replay.load(path).turns for path in again)
    assert [path.read_bytes() for path in again[2:]] == kept


def test_resuming_does_not_mix_games_of_two_versions_of_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    snake = own_snake("return (board.safe_moves() or ['up'])[0]")
    call = [f"mine={snake}", "hungry", *SMALL, "--resume"]
    assert results(capsys, *call, "--games=2")["mine"]["games"] == 2
    assert results(capsys, *call, "--games=3")["mine"]["games"] == 3
    own_snake("return (board.safe_moves() or ['up'])[-1]")
    assert arena_command.main([*call, "--games=1", "--json", "--jobs=1"]) == 0
    done = capsys.readouterr()
    assert "mine" in done.err
    assert [line["games"] for line in json.loads(done.out)] == [1, 1]


@pytest.mark.parametrize("form", ["file", "run"])
def test_a_policy_is_rejected_on_an_unsupported_board_size(
    policy_file: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    snake = str(policy_file if form == "file" else policy_file.parent)
    assert arena_command.main(["random", snake, "--board-size=7"]) == 2
    assert re.search(rf"{re.escape(snake)}: .* 11x11.* 7x7", capsys.readouterr().err)


def test_a_url_that_is_no_snake_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with misbehaving_snakes.snake(misbehaving_snakes.answers(b"<html>")) as url:
        assert arena_command.main([url]) == 2
    assert re.search(r"http://127\.0\.0\.1:", capsys.readouterr().err)


def match(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a match, resume it, and return both results."""
    results = []
    for more in ((), ("--resume",)):
        assert arena_command.main([*arguments, *more, "--json", "--jobs=1"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    return results[0], results[1]


@pytest.mark.parametrize("num_snakes", [2, 4])
def test_a_decided_match_stops_and_is_not_played_again(
    num_snakes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    result, again = match(
        capsys, "tree", "random", "--sprt", "0", "200", "--move-time=5",
        f"--num-snakes={num_snakes}", "--board-size=7",
    )  # fmt: skip
    assert result["verdict"] == "H1"
    assert result["llr"] >= result["llr_bounds"][1]
    assert result["ci_low"] > 0
    assert sum(result["pairs"]) * 2 == result["games"] < 40
    assert again == result


@pytest.mark.parametrize(
    ("snake", "load", "more", "warns"),
    [
        ("minimax", 9.0, [], True),
        ("minimax", 0.0, [], False),
        ("minimax@9", 9.0, [], False),
        ("minimax", 9.0, ["--timeout=50"], False),
        ("minimax", 9.0, ["--move-time=5"], False),
    ],
)
def test_timeouts_on_a_busy_machine_print_a_warning(
    snake: str, load: float, more: list[str], warns: bool,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    call = [snake, "random", "--games=1", "--max-turns=1", "--jobs=1"]
    assert arena_command.main([*call, *more]) == 0
    assert ("--move-time 50" in capsys.readouterr().err) == warns


def test_a_match_resumes_and_other_bounds_may_decide_it(capsys: pytest.CaptureFixture[str]) -> None:
    call = ("cautious", "minimax@5", "--nodes=5", *SMALL)
    first, again = match(capsys, *call, "--sprt", "0", "5", "--games=4")
    assert first["verdict"] is None
    assert first["games"] == again["games"] == 4
    longer, _ = match(capsys, *call, "--sprt", "0", "5", "--games=8", "--resume")
    assert longer["games"] == 8
    pairs = zip(longer["pairs"], first["pairs"], strict=True)
    assert all(after >= before for after, before in pairs)
    decided, _ = match(capsys, *call, "--sprt", "-1200", "-800", "--resume")
    assert decided["games"] == 8
    assert decided["verdict"] == "H1"


def test_a_match_with_a_url_is_refereed(cautious: str, capsys: pytest.CaptureFixture[str]) -> None:
    result, _ = match(
        capsys, cautious, "random", "--sprt", "0", "300", "--timeout=5000", "--max-turns=60",
        "--board-size=7", "--games=4",
    )  # fmt: skip
    assert result["games"] == 4
    assert result["score"] >= 0.5


def test_a_full_disk_is_reported_like_all_errors_of_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "replays/1")
    assert arena_command.report_stop("arena", full, "free space") == 1
    said = capsys.readouterr().err
    assert said == "battlesnake-gym arena: replays/1: no space left on device; free space\n"
