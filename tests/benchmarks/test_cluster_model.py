"""The cluster model."""

import dataclasses
from typing import Any

import pytest

from benchmarks.cluster_model import APEX_NAME, LATE_EXIT_NAME, MEASURED_COSTS, FragmentCosts

FREE = FragmentCosts(
    moves=100, play=1, learn=0, overhead=0, threads=0, size=0, contention=0, call=0
)


@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({}, 1600),
        ({"learn": 0.5}, 200),
        ({"learn": 0.2, "overhead": 0.3}, 200),  # on one thread
        ({"learn": 0.2, "threads": 0.5}, 200),  # on two threads
        ({"learn": 0.5, "waits": True}, 1600 / 9),
        ({"learn": 0.5, "own_pace": True}, 1600),
        ({"sends": 2, "call": 0.25}, 12.5),  # 32 calls
        ({"shard": 1}, 200),  # two shards
        ({"match": 1}, 800),
        ({"size": 1.25e9}, 100),
        ({"sends": 1, "weights": 1.25e9}, 50),  # two machines
        ({"contention": 1, "runners_per_machine": 1}, 1600),
    ],
)
def test_the_slowest_part_sets_the_pace(changes: dict[str, Any], moves: float) -> None:
    assert dataclasses.replace(FREE, **changes).moves_per_second(16) == pytest.approx(moves)


def test_runners_that_keep_a_part_busy() -> None:
    costs = dataclasses.replace(FREE, learn=0.5, size=1.25e8)
    assert costs.saturating_runners("learning") == pytest.approx(2, rel=0.02)
    assert costs.saturating_runners("network in") == pytest.approx(10, rel=0.02)


@pytest.mark.rllib
def test_the_preflight_has_what_is_calculated_of_exit() -> None:
    from battlesnake_rl.mabs import algorithms

    # The late games were measured with 8 buffered iterations.
    late = {"deep_search_after_moves": 1, "buffer_iterations": 8}
    for name, settings in (("EXIT", {}), (LATE_EXIT_NAME, late)):
        config = algorithms.configure("EXIT", {})
        config.update_from_dict(settings)
        assert algorithms.num_saturating_env_runners(config) == pytest.approx(
            MEASURED_COSTS[name].saturating_runners("learning"), rel=0.15
        )
    assert MEASURED_COSTS[APEX_NAME].saturating_runners("learning") < 2
