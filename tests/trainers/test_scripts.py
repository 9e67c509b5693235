"""The scripts of docs/trainers run as they stand, and what they train beats `safe-random`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "trainers"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


def test_the_page_shows_each_script() -> None:
    page = (FOLDER.parent / "trainers.md").read_text()
    assert SCRIPTS
    assert sorted(re.findall(r"literalinclude} trainers/(\S+)", page)) == SCRIPTS


@pytest.mark.slow
@pytest.mark.rllib
@pytest.mark.parametrize("script", SCRIPTS)
def test_it_learns(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / script)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (rate,) = re.findall(r"win rate (\d\.\d+) against safe-random", ran.stdout)
    assert float(rate) > 0.5
