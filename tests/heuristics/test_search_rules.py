"""The search implements the rules: C compared with Python."""

import itertools

import pytest

from tests.heuristics.search_rules import differences

_search = pytest.importorskip("battlesnake_heuristics.search._search")


@pytest.mark.parametrize("turns", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_it_plays_random_turns_as_the_rules_do(turns: int) -> None:
    assert list(itertools.islice(differences(_search, 7, turns), 3)) == []
