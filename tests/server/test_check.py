"""`battlesnake-gym snakes check`: ten planted regressions are refused before submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from battlesnake_server.commands import check_command

GOOD = """
import time
from battlesnake_gym import snakes
from battlesnake_heuristics.handwritten.conditions import hungry
from battlesnake_heuristics.handwritten.filters import *
from battlesnake_heuristics.handwritten.pipeline import Decision, Pipeline, When
from battlesnake_heuristics.handwritten.preferences import *

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
def crowd(view, move):
    return -view.room(move)

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
    "too slow": ("return pipeline(", "sum(range(3 * 10**7)); return pipeline("),
}
"""Ten edits for the worse: a text of the snake's file, and what it becomes."""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_planted_regression_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = REGRESSIONS[name]
    assert GOOD.count(old) == 1
    worse = GOOD.replace(old, new)
    if new == FLOOD:
        worse = worse.replace("[space, distance]", "[crowd, distance]")
    words = [written(tmp_path, "new", worse), "--against", written(tmp_path, "old", GOOD)]
    assert check_command.main(words) == 1
    assert "REFUSED: " in capsys.readouterr().out


def test_a_change_that_does_no_harm_is_fit_and_advice_names_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    check_command.write_template(path)
    assert check_command.main([str(path)]) == 0
    assert "- bait: left, not up; try filters.dead_ends" in capsys.readouterr().out
    better = path.read_text().replace("filters.neck,", "filters.neck, filters.bodies,")
    assert check_command.main([written(tmp_path, "new", better), "--against", str(path)]) == 0
    with pytest.raises(ValueError, match="is there already"):
        check_command.write_template(path)
