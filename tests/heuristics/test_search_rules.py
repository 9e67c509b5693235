"""The search implements the rules: C compared with Python."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.heuristics.search_rules import differences, games_of

_search = pytest.importorskip("battlesnake_heuristics.search._search")


@pytest.mark.parametrize("turns", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_it_plays_random_turns_as_the_rules_do(turns: int) -> None:
    assert list(itertools.islice(differences(_search, 7, turns), 3)) == []


def test_the_random_games_hold_what_the_rules_know() -> None:
    seen: Counter[str] = Counter()
    for game, state in games_of(7, 150):
        seen[game.ruleset] += 1
        seen[f"{len(state.snakes)} snakes"] += 1
        seen["healing"] += game.settings.hazard_damage_per_turn < 0 and bool(state.hazards)
        seen["stacked hazards"] += len(set(state.hazards)) < len(state.hazards)
        seen["starving"] += any(snake.health == 1 for snake in state.snakes)
        seen["7 wide"] += state.width == 7
        seen["25 wide"] += state.width == 25
    rare = [what for what, count in seen.items() if count < 8]
    assert not rare
    assert len([what for what in seen if what.endswith(" snakes")]) == 8
