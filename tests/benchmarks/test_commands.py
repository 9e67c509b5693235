"""Benchmarks that check more than speed, run as commands."""

import re
import sys
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_more_thinking_gives_away_less() -> None:
    command = (sys.executable, "-m", "benchmarks.proven_positions")
    done = run(*command, "--positions", 40, "--move-time", 0.02, 20, cwd=ROOT, check=True)
    little, much = (float(one) for one in re.findall(r"worse moves in (\S+)%", done.stdout)[:2])
    assert re.search(r"constrictor.* 20", done.stdout)
    assert re.search(r"endgame.* 20", done.stdout)
    assert much < little
