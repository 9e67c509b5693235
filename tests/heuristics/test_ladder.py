"""The ladder, and the placement of snakes on it."""

from functools import partial

import numpy as np
import pytest

from battlesnake_gym import snakes
from battlesnake_heuristics.rating import ladder
from battlesnake_heuristics.rating.ladder import (
    Ladder,
    Placement,
    PlacementRun,
    Rung,
    run_placement,
)
from battlesnake_heuristics.rating.sprt import expected_score

pytest.importorskip("battlesnake_heuristics.search._search")


def played(random: np.random.Generator, difference: float, pairs: int) -> list[int]:
    """Simulate pairs between snakes with this Elo difference; seats do not matter."""
    score = expected_score(difference)
    points = random.binomial(2, score, pairs)
    return [int((points == p / 2).sum()) for p in range(5)]


def test_there_are_ladders_for_duels_and_for_four_with_all_rungs() -> None:
    for count in (2, 4):
        rungs = Ladder.load(count).rungs
        assert tuple(rung.name for rung in rungs) == ladder.RUNG_NAMES
        for rung in rungs:
            snakes.make(rung.name)
            assert rung.ci_low <= rung.elo <= rung.ci_high
            assert rung.games > 0
        elo = {rung.name: rung.elo for rung in rungs}
        assert elo[ladder.ANCHOR_NAME] == ladder.ANCHOR_ELO
        assert elo["safe-random"] < elo["tree"]
        assert elo["minimax-2026@10"] < elo["minimax-2026@400"] < elo["minimax-2026@50000"]
    with pytest.raises(ValueError, match=r"\b2\b.* 4\b.* 3\b"):
        Ladder.load(3)


def simulated(elo: float, rungs: Ladder, interval: float, seed: int) -> PlacementRun:
    random = np.random.default_rng(seed)
    placing = PlacementRun(rungs)
    while not (now := placing.placement).games or now.ci_high - now.ci_low > 2 * interval:
        rung = placing.next_rung()
        placing.add_pair(rung.name, int(np.argmax(played(random, elo - rung.elo, 1))))
    return placing


RUNGS = Ladder(2, tuple(Rung(str(i), 600.0 + 150 * i, 0, 0, 9, 0.1 + i) for i in range(8)))


def test_simulated_snakes_are_placed_where_they_stand() -> None:
    held = 0
    for seed in range(100):
        elo = 500 + 12.0 * seed
        now = simulated(elo, RUNGS, 100, seed).placement
        held += now.ci_low <= elo <= now.ci_high
        assert now.games < 160
        assert not now.out_of_range
    assert held >= 88  # of 95 expected


def test_quick_rungs_near_the_estimate_are_met_and_not_one_alone() -> None:
    placing = simulated(900, RUNGS, 60, 1)
    met = {rung: sum(pairs) for rung, pairs in placing.placement.pairs.items()}
    assert len(met) >= 3
    assert max(met, key=lambda rung: met[rung]) in ("0", "1", "2", "3")


def test_a_snake_beyond_the_ladder_is_said_to_be() -> None:
    placing = PlacementRun(RUNGS)
    for _ in range(40):
        placing.add_pair(placing.next_rung().name, 4)
    assert placing.placement.out_of_range == "above"
    assert "above" in str(placing.placement)


def test_a_snake_is_placed_in_this_process() -> None:
    told: list[Placement] = []
    now = run_placement(
        partial(snakes.make, "safe-random"),
        precision_elo=250,
        cpu_seconds=5.0,
        on_update=told.append,
    )
    assert now == told[-1]
    assert now.games == 2 * len(told)
    assert now.ci_high < {rung.name: rung.elo for rung in Ladder.load(2).rungs}["tree"]
