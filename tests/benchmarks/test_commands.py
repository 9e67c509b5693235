"""Benchmarks that check more than speed, run as commands."""

import re
import sys
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]


def benchmark(name: str, *words: object) -> str:
    """Return the output of ``benchmarks/NAME.py``; exit status 1 is a verdict of the benchmark."""
    done = run(sys.executable, "-m", f"benchmarks.{name}", *words, cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("snake", ["cautious", pytest.param("minimax", marks=pytest.mark.slow)])
def test_broken_requests_upset_no_server(snake: str) -> None:
    printed = benchmark("fuzz", "--requests", 400, "--connections", 2, "--snakes", snake)
    counts = {
        (kind.strip(), came.strip()): int(count)
        for kind, came, count in re.findall(r"^  (.{14}) (.{24}) +(\d+)$", printed, re.MULTILINE)
    }
    assert sum(counts.values()) >= 400
    assert counts["valid", "a move"] > 50
    assert counts["damaged JSON", "a move"] > 50
    assert counts["damaged JSON", "rejected (4xx)"] > 20
    assert not [came for _, came in counts if came.isupper() or "ERROR" in came]


@pytest.mark.slow
def test_more_thinking_gives_away_less() -> None:
    printed = benchmark("proven_positions", "--positions", 40, "--move-time", 0.02, 20)
    little, much = (float(one) for one in re.findall(r"worse moves in (\S+)%", printed)[:2])
    assert re.search(r"constrictor.* 20", printed)
    assert re.search(r"endgame.* 20", printed)
    assert much < little
