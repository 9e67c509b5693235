"""`battlesnake-gym snakes check` rejects ten planted regressions."""

import math
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_heuristics.rating.match import MatchSettings, play_pair
from battlesnake_heuristics.rating.sprt import PAIR_SCORES
from battlesnake_heuristics.rule_based import filters
from battlesnake_server.commands import snakes_check_command

GOOD = """
import time
from battlesnake_gym import snakes
from battlesnake_heuristics.rule_based.conditions import hungry
from battlesnake_heuristics.rule_based.filters import *
from battlesnake_heuristics.rule_based.pipeline import Decision, Pipeline, When
from battlesnake_heuristics.rule_based.preferences import *

RULES = [walls, neck, starvation, bodies, head_to_heads, dead_ends,
         When(hungry, [food], [space, distance])]

def mine(seed):
    pipeline = Pipeline(*RULES, seed=seed)
    def decide(board, seconds=None):
        return pipeline(board, seconds)
    return decide

snakes.register("mine", mine)
"""
FLOOD = """
@Filter
def crowd(view, move):
    return view.num_reachable(move)

RULES ="""
REGRESSIONS = {
    "walls": ("walls, neck", "neck"),
    "bodies": ("bodies, ", ""),
    "along the walls": ("[space, distance]", "[edge]"),
    "hunger": ("starvation, ", ""),
    "into dead ends": ("dead_ends,", "edge,"),
    "no food": ("[food], [", "[space], ["),
    "flood fill the wrong way": ("RULES =", FLOOD),
    "raises without food": ("return pipeline(", "board.food[0]; return pipeline("),
    "a word in capitals": ("return pipeline(board, seconds)", 'return Decision("UP")'),
    "too slow": ("return pipeline(", "sum(range(10**8)); return pipeline("),
}
"""Ten harmful edits: a text of the snake's file, and its replacement."""


pytestmark = pytest.mark.usefixtures("in_own_folder")


def written(name: str, text: str) -> str:
    path = Path(f"{name}.py")
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_planted_regression_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = REGRESSIONS[name]
    assert GOOD.count(old) == 1
    worse = GOOD.replace(old, new)
    if new == FLOOD:
        worse = worse.replace("dead_ends,\n", "crowd,\n")
    words = [written("new", worse), "--against", written("old", GOOD)]
    assert snakes_check_command.main(words) == 1
    assert "REJECTED: " in capsys.readouterr().out


def test_a_change_that_does_no_harm_is_fit_and_advice_names_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = Path("mine.py")
    snakes_check_command.write_template(path)
    assert snakes_check_command.main([str(path)]) == 0
    assert "filters.dead_ends" in capsys.readouterr().out
    better = path.read_text().replace("filters.neck,", "filters.neck, filters.bodies,")
    new = written("new", better)
    assert snakes_check_command.main([new, "--against", str(path)]) == 0
    assert "two-snake games against mine.py\n" in capsys.readouterr().out
    with pytest.raises(ValueError, match="exists"):
        snakes_check_command.write_template(path)


EDITS = 6
EDITED = [f"filters.{name}" for name in filters.FILTERS] + [
    f"preferences.{name}" for name in ("space", "territory", "center", "tail", "hunt")
]


def edited(path: Path, rule: str, place: int) -> str:
    """Return the snake's file with one more rule at this index of its list."""
    head, rest = path.read_text().split("RULES = [\n")
    rules, tail = rest.split("]\n", 1)
    lines = rules.splitlines(keepends=True)
    lines.insert(min(place, len(lines)), f"    {rule},\n")
    return f"{head}RULES = [\n{''.join(lines)}]\n{tail}"


def with_tools(path: Path, rand: random.Random, capsys: pytest.CaptureFixture[str]) -> None:
    """Edit a snake by the command's advice, then at random; undo edits without a gain."""
    tried: set[str] = set()
    for edit in range(EDITS):
        old = written(f"{path.stem}_{edit}", path.read_text())
        snakes_check_command.main([old])
        advised = [*re.findall(r"filters\.\w+", capsys.readouterr().out), *rand.sample(EDITED, 9)]
        rule = next(one for one in advised if one not in tried)
        tried.add(rule)
        place = 2 if rule.startswith("filters") else rand.randrange(2, 9)
        new = written(f"{path.stem}_{edit}_new", edited(path, rule, place))
        fit = snakes_check_command.main([new, "--against", old]) == 0
        share = re.search(r"score (\d+)% in \d+ two-snake games", capsys.readouterr().out)
        if fit and share and int(share[1]) > 50:
            path.write_text(Path(new).read_text())


def without(path: Path, rand: random.Random) -> None:
    """Make the same number of edits, with the same rules, at random."""
    for rule in rand.sample(EDITED, EDITS):
        path.write_text(edited(path, rule, rand.randrange(2, 9)))


@pytest.mark.slow
def test_edits_by_the_tools_are_150_elo_better(capsys: pytest.CaptureFixture[str]) -> None:
    """Compare five scripted agents that use the tools with five that edit at random."""
    counts = [0] * len(PAIR_SCORES)
    for seed in range(5):
        guided, alone = Path(f"guided_{seed}.py"), Path(f"alone_{seed}.py")
        for path in (guided, alone):
            snakes_check_command.write_template(path)
        with_tools(guided, random.Random(seed), capsys)
        without(alone, random.Random(seed))
        one, two = snakes.factory(str(guided)), snakes.factory(str(alone))
        for index in range(20):
            counts[play_pair(MatchSettings(), one, two, seed, index)[0]] += 1
    points = sum(float(o) * n for o, n in zip(PAIR_SCORES, counts, strict=True)) / sum(counts)
    elo = 400 * math.log10(points / (1 - points))
    assert elo > 150, f"{points:.3f} of the points, {elo:.0f} Elo, {counts}"
    sys.stdout.write(f"{points:.3f} of the points, {elo:.0f} Elo, {counts}\n")


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("return pipeline(board, seconds)", "raise SystemExit(0)", "SystemExit: 0"),
        ("pipeline = ", "pipeline = 1 / 0; ", "ZeroDivisionError"),
    ],
)
def test_a_snake_that_exits_or_fails_is_named_with_its_line(
    before: str, after: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new snake is rejected; an earlier version that cannot play is an invalid option."""
    broken = written("mine", GOOD.replace(before, after, 1))
    assert snakes_check_command.main([broken]) == 1
    assert re.search(rf"raises .*mine\.py, line \d+: {error}", capsys.readouterr().out)
    assert snakes_check_command.main(["hungry-blackout", "--against", broken]) == 2
    assert re.search(rf"mine\.py, line \d+: {error}", capsys.readouterr().err)


def test_a_snake_may_return_the_name_of_its_move() -> None:
    def play(board: Board, seconds: float | None = None) -> Any:
        return "up"

    factory = snakes_check_command._checked_factory(lambda seed: play, 99)
    board = Board.from_text(". . .\n. . .\n. A .\n. ^ .\nA: you")
    assert factory(1)(board).move == "up"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return pipeline(board, seconds)", "while True: time.sleep(1)"),
        ("pipeline = Pipeline(*RULES, seed=seed)", "while True: time.sleep(1)"),
        ("RULES =", "while True: time.sleep(1)\nRULES ="),
    ],
)
def test_a_snake_that_never_returns_is_rejected(before: str, after: str) -> None:
    """CPU time does not pass; the limit is on wall-clock time."""
    code = (
        "import sys; from battlesnake_server.commands import snakes_check_command as command; "
        "command._MAX_CALL_S = 1; sys.exit(command.main(sys.argv[1:]))"
    )
    path = written("mine", GOOD.replace(before, after))
    ran = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 1
    assert re.search(r"mine\.py.* 1 s", ran.stdout)
