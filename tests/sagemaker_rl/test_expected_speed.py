"""How fast a job is expected to be."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battlesnake_rl.launcher.launch.expected_speed import (
    SAMPLED_PER_CPU_SECOND,
    TRAINED_PER_CPU_SECOND,
    Speed,
)

PROPERTY = settings(suppress_health_check=list(HealthCheck))
CPUS = st.integers(1, 200)
SPEEDS = st.builds(
    Speed,
    algorithm=st.sampled_from(list(SAMPLED_PER_CPU_SECOND)),
    replay_ratio=st.floats(0.01, 100),
    trained_per_second=st.floats(1, 1e6),
)


@PROPERTY
@given(CPUS, CPUS, SPEEDS)
def test_more_instances_never_play_less(cpus: int, more: int, speed: Speed) -> None:
    before, after = speed.forecast(cpus), speed.forecast(cpus + more)
    assert after.agent_steps >= before.agent_steps * (1 - 1e-9)


@PROPERTY
@given(CPUS, SPEEDS)
def test_a_job_learns_no_faster_than_its_learner(cpus: int, speed: Speed) -> None:
    told = speed.forecast(cpus)
    assert 0 < told.agent_steps * speed.replay_ratio <= speed.trained_per_second * (1 + 1e-9)
    assert told.bound
    assert 0 < told.learner <= 1 + 1e-9
    assert 0 < told.runners <= 1 + 1e-9
    if speed.algorithm == "APEX" and cpus > 1:
        assert max(told.learner, told.runners) == pytest.approx(1)
    else:
        assert told.learner + told.runners == pytest.approx(1)


@PROPERTY
@given(st.integers(2, 200), SPEEDS.filter(lambda speed: speed.algorithm == "APEX"))
def test_what_is_advised_does_as_much_for_less(cpus: int, speed: Speed) -> None:
    told = speed.forecast(cpus)
    fewer = re.match(r"(\d+) CPUs in all", told.instead)
    if fewer is not None:
        assert int(fewer[1]) < cpus
        assert speed.forecast(int(fewer[1])).agent_steps == pytest.approx(told.agent_steps)
    more = re.match(r"more CPUs that play, up to (\d+)", told.instead)
    if more is not None:
        enough = speed.forecast(int(more[1]) + 1)
        assert enough.agent_steps > told.agent_steps
        assert enough.learner == pytest.approx(1)


def test_the_model_agrees_with_what_was_measured_of_it() -> None:
    """docs/training.md: what one second of processor time does, playing and learning together."""

    def learning(algorithm: str, replay_ratio: float) -> float:
        played = 1 / SAMPLED_PER_CPU_SECOND[algorithm]
        return 1 / (played + replay_ratio / TRAINED_PER_CPU_SECOND)

    assert learning("DQN", 2.0) == pytest.approx(9_550)
    assert learning("DQN", 0.25) == pytest.approx(43_817, rel=0.1)
    assert learning("APEX", 0.25) == pytest.approx(31_971, rel=0.2)
