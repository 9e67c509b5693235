"""What libFuzzer kept is asked of the build that is installed."""

import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("battlesnake_heuristics.search._search")

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.append(str(TOOLS))


def test_the_corpus_is_refused_or_answered() -> None:
    import fuzz_boundary

    with zipfile.ZipFile(TOOLS / "boundary_corpus.zip") as corpus:
        names = corpus.namelist()[::10]
        for name in names:
            fuzz_boundary.fuzz_once(corpus.read(name))
    assert len(names) > 5
