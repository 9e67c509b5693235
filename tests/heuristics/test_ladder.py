"""The fit of the ladder, and the placement of snakes on it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from battlesnake_gym import snakes
from battlesnake_heuristics.rating import ladder
from battlesnake_heuristics.rating.ladder import (
    Ladder,
    PairResults,
    Placement,
    PlacementRun,
    Rung,
    fit_elo,
    load,
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
        rungs = load(count).rungs
        assert tuple(rung.name for rung in rungs) == ladder.RUNG_NAMES
        for rung in rungs:
            snakes.make(rung.name)
            assert rung.low <= rung.elo <= rung.high
            assert rung.games > 0
        elo = {rung.name: rung.elo for rung in rungs}
        assert elo[ladder.ANCHOR_NAME] == ladder.ANCHOR_ELO
        assert elo["safe-random"] < elo["tree"]
        assert elo["minimax-2026@10"] < elo["minimax-2026@400"] < elo["minimax-2026@50000"]
    with pytest.raises(ValueError, match=r"\b2\b.* 4\b.* 3\b"):
        load(3)


def test_the_fit_finds_the_elo_that_games_were_simulated_with() -> None:
    random = np.random.default_rng(5)
    true = dict(
        zip(("weak", ladder.ANCHOR_NAME, "good", "best"), (700, 1000, 1150, 1500), strict=True)
    )
    names = tuple(true)
    results = [
        PairResults(one, other, tuple(played(random, true[one] - true[other], 300)))
        for place, one in enumerate(names)
        for other in names[place + 1 : place + 3]
    ]
    for name, (elo, error) in fit_elo(results, names).items():
        assert abs(elo - true[name]) <= 3 * error
        assert error < 40


def test_the_rungs_elo_follow_from_the_games_that_are_kept() -> None:
    data = json.loads(Path(ladder.__file__).with_name("ladder.json").read_text())
    for count, rungs in data["ladders"].items():
        met = [PairResults(m["one"], m["other"], tuple(m["pairs"])) for m in data["results"][count]]
        elo = fit_elo(met, ladder.RUNG_NAMES)
        for rung in rungs:
            assert elo[rung["name"]][0] == pytest.approx(rung["elo"], abs=1)


def test_who_lost_everything_has_an_elo_all_the_same() -> None:
    elo = fit_elo(
        [PairResults("weak", ladder.ANCHOR_NAME, (20, 0, 0, 0, 0))], ("weak", ladder.ANCHOR_NAME)
    )
    assert -500 < elo["weak"][0] < 600


def simulated(elo: float, rungs: Ladder, interval: float, seed: int) -> PlacementRun:
    random = np.random.default_rng(seed)
    placing = PlacementRun(rungs)
    while not (now := placing.placement).games or now.high - now.low > 2 * interval:
        rung = placing.next_rung()
        placing.add_pair(rung.name, int(np.argmax(played(random, elo - rung.elo, 1))))
    return placing


RUNGS = Ladder(2, tuple(Rung(str(i), 600.0 + 150 * i, 0, 0, 9, 0.1 + i) for i in range(8)))


def test_simulated_snakes_are_placed_where_they_stand() -> None:
    held = 0
    for seed in range(100):
        elo = 500 + 12.0 * seed
        now = simulated(elo, RUNGS, 100, seed).placement
        held += now.low <= elo <= now.high
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
    assert now.high < {rung.name: rung.elo for rung in load(2).rungs}["tree"]
