"""The scenarios command."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from battlesnake_heuristics.analysis.scenarios import BUILTIN_SCENARIOS, load
from battlesnake_server.commands.game_scenarios_command import main
from tests.server import misbehaving_snakes

TWO = """\
scenario: corner
note: One way.
allowed: up
. . .
. . .
A < <

scenario: other corner
note: Wrong on purpose.
allowed: left
. . .
. . .
> > A
"""


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "two.txt"
    path.write_text(TWO)
    return str(path)


def test_a_failure_is_printed_with_board_and_reasons(
    two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([two]) == 1  # the second scenario is mistaken
    failure = capsys.readouterr().out.partition("FAIL")[2]
    assert "other corner" in failure
    assert re.search(r"\bup\b.* left\b", failure)
    assert "> > A" in failure
    assert re.search(r"\bdown\b.* right\b", failure)


def test_the_built_in_scenarios_are_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    count = sum(len(load(path)) for path in BUILTIN_SCENARIOS)
    assert f"{count} of {count} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("move", "passed", "reason"),
    [
        ("'up'", 1, "right, not left|up, not left"),
        ("exit(0)", 0, "mine.py, line 2: SystemExit"),
        ("'north'", 0, "ValueError: move must be one of"),
        ("None", 0, "TypeError: a strategy returns"),
    ],
)
def test_a_strategy_may_return_text_and_fail_in_any_way(
    move: str,
    passed: int,
    reason: str,
    two: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.py").write_text(
        "from battlesnake_gym import snakes\n"
        f"snakes.register('mine', lambda seed: lambda board, seconds: {move})\n"
    )
    assert main([two, "--snake", str(tmp_path / "mine.py")]) == 1
    out = capsys.readouterr().out
    assert f"{passed} of 2" in out
    assert re.search(reason, out)


def test_each_scenario_is_a_new_game_for_a_url(
    two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    snake = misbehaving_snakes.Recorder(lambda body: b'{"move": "up"}')
    with misbehaving_snakes.snake(snake) as url:
        assert main([two, "--snake", f"label={url}/base"]) == 1
    assert "1 of 2" in capsys.readouterr().out
    requests = [
        (line.split()[1], json.loads(body)["game"]["id"])
        for line, _, body in snake.requests
        if line.startswith("POST ")
    ]
    assert requests == [
        (f"/base/{what}", f"scenario-{number}")
        for number in (0, 1)
        for what in ("start", "move", "end")
    ]


@pytest.mark.parametrize(
    ("behavior", "problem"),
    [
        (misbehaving_snakes.drips_body, "timeout"),
        (misbehaving_snakes.answers(b'{"move": "north"}'), "answer"),
    ],
)
def test_a_missing_or_invalid_response_fails(
    behavior: misbehaving_snakes.Behavior,
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "quick.txt"
    path.write_text(TWO.replace("allowed: up\n", "allowed: up\ntimeout=100\n"))
    with misbehaving_snakes.snake(behavior) as url:
        assert main([str(path), "--snake", url]) == 1
    out = capsys.readouterr().out
    assert re.search(r"no move.* up\b", out)
    assert problem in out
    assert "0 of 2" in out


def test_a_served_snake_passes_the_same_scenarios(
    serve: Callable[..., str], two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = serve("--snake", "territory", "--send-decisions")
    assert main(["--snake", url]) == 0
    assert "FAIL" not in capsys.readouterr().out
    assert main([two, "--snake", url]) == 1
    assert "not down" in capsys.readouterr().out, "the reasons that the snake sends are printed"


def test_a_policy_may_reject_a_board(
    tmp_path: Path, policy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["A < < " + ". " * 8] + [". " * 11] * 10
    path = tmp_path / "large.txt"
    path.write_text("scenario: large\nallowed: down\n" + "\n".join(rows) + "\n" + TWO)
    assert main([str(path), "--snake", str(policy_file)]) == 1
    out = capsys.readouterr().out
    assert "pass  large" in out
    assert out.count("no move, not") == 2
    assert "exception  " in out
    assert "PolicyError: " in out
