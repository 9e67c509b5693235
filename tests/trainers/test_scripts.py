"""The scripts of docs/trainers run as they stand, and what they train beats `safe-random`."""

import math
import os
import re
import sys
from pathlib import Path

import pytest

from tests.processes import run

FOLDER = Path(__file__).parents[2] / "docs" / "trainers"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


GAMES = 200
"""That `win_rate` plays unless told otherwise."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("script", [one for one in SCRIPTS if one != "self_play.py"])
def test_it_learns(script: str, tmp_path: Path) -> None:
    ran = run(sys.executable, FOLDER / script, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    (rate,) = re.findall(r"win rate (\d\.\d+) against safe-random", ran.stdout)
    win = float(rate)
    half_width = 1.96 * math.sqrt(win * (1 - win) / GAMES)
    assert win - half_width > 0.5, f"{win} of {GAMES} games may be chance"


def test_it_plays_against_its_past(tmp_path: Path) -> None:
    few_seconds = os.environ | {"MINUTES": "0.06"}
    ran = run(sys.executable, FOLDER / "self_play.py", cwd=tmp_path, env=few_seconds)
    assert ran.returncode == 0, ran.stderr
    (rate,) = re.findall(r"win rate (\d\.\d+) against itself", ran.stdout)
    assert 0.2 < float(rate) < 0.8
