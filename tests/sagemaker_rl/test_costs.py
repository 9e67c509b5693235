"""What training costs: the calculation and its command."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from battlesnake_gym.cli import cli
from battlesnake_rl.launcher.launch import costs
from battlesnake_rl.launcher.launch.costs import CostError, Group, Speed

PROPERTY = settings(suppress_health_check=list(HealthCheck))
SHARES = st.floats(0, 1)
GROUPS = st.builds(
    Group,
    instances=st.integers(1, 50),
    cpus=st.integers(1, 96),
    price_per_hour=st.just(0.0) | st.floats(0.001, 100),
    spot_share=SHARES,
    spot_saving=SHARES,
)
CPUS = st.integers(1, 200)
SPEEDS = st.builds(
    Speed,
    algorithm=st.sampled_from(list(costs.SAMPLED_PER_CPU_SECOND)),
    replay_ratio=st.floats(0.01, 100),
    trained_per_second=st.floats(1, 1e6),
)


@PROPERTY
@given(GROUPS, SHARES)
def test_more_spot_is_never_dearer(group: Group, share: float) -> None:
    assume(share >= group.spot_share)
    assert replace(group, spot_share=share).cost_per_hour <= group.cost_per_hour


@PROPERTY
@given(GROUPS)
def test_twice_the_instances_cost_twice_as_much(group: Group) -> None:
    twice = replace(group, instances=2 * group.instances)
    assert twice.cost_per_hour == 2 * group.cost_per_hour


@PROPERTY
@given(GROUPS)
def test_an_hour_costs_between_nothing_and_the_list_price(group: Group) -> None:
    assert 0 <= group.cost_per_hour <= group.instances * group.price_per_hour


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


@PROPERTY
@given(st.lists(GROUPS, min_size=1, max_size=3), st.floats(1, 1e7))
def test_a_million_steps_cost_what_their_time_costs(groups: list[Group], speed: float) -> None:
    hours = 1e6 / speed / 3600
    hourly = sum(group.cost_per_hour for group in groups)
    assert costs.price_per_million(groups, speed) == pytest.approx(hourly * hours)


def test_the_model_agrees_with_what_was_measured_of_it() -> None:
    """docs/training.md: what one second of processor time does, playing and learning together."""

    def learning(algorithm: str, replay_ratio: float) -> float:
        played = 1 / costs.SAMPLED_PER_CPU_SECOND[algorithm]
        return 1 / (played + replay_ratio / costs.TRAINED_PER_CPU_SECOND)

    assert learning("DQN", 2.0) == pytest.approx(9_550)
    assert learning("DQN", 0.25) == pytest.approx(43_817, rel=0.1)
    assert learning("APEX", 0.25) == pytest.approx(31_971, rel=0.2)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("instances", 0, "instances must be a whole number from 1 on, got 0; an instance"),
        ("cpus", -4, "cpus must be a whole number from 1 on, got -4; give the vCPUs"),
        ("price_per_hour", -0.1, r"price_per_hour .* got -0.1; take it from the price list"),
        ("price_per_hour", float("nan"), "price_per_hour .* got nan"),
        ("spot_share", 70, "spot_share must be between 0 and 1, got 70; write 70 % as 0.7"),
        ("spot_saving", float("nan"), "spot_saving must be between 0 and 1, got nan"),
    ],
)
def test_an_impossible_group_says_why(field: str, value: float, words: str) -> None:
    changes: dict[str, Any] = {field: value}
    good = Group(instances=1, cpus=8, price_per_hour=0.4)
    with pytest.raises(CostError, match=words):
        replace(good, **changes)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("algorithm", "PPO", "algorithm must be one of DQN, APEX, got 'PPO'; others were not"),
        ("replay_ratio", 0.0, "replay_ratio must be a number above 0, got 0.0; give the job's"),
        ("trained_per_second", float("inf"), "trained_per_second .* got inf; give what"),
    ],
)
def test_an_impossible_speed_says_why(field: str, value: object, words: str) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(CostError, match=words):
        replace(Speed(), **changes)


ONE = ["--price-per-hour", "0.4", "--cpus", "8"]


def test_one_instance(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cost", *ONE, "--algorithm", "DQN", "--hours", "10"]) == 0
    said = capsys.readouterr().out
    assert "9,550 a second" in said
    assert "10 h                   4, 344 million" in said
    assert "a million agent-steps  0.0116" in said


def test_equal_instances_on_spot(capsys: pytest.CaptureFixture[str]) -> None:
    spot = ["--instances", "3", "--spot-share", "0.5", "--spot-saving", "0.6"]
    assert costs.main([*ONE, *spot, "--replay-ratio", "0.25"]) == 0
    said = capsys.readouterr().out
    assert "3 x 8 CPUs at 0.4, 50% spot saving 60%  0.84 an hour" in said
    assert "bound by learning; 2 of the 23 CPUs that play would do" in said


def test_a_gpu_and_cpus(capsys: pytest.CaptureFixture[str]) -> None:
    second = ["--secondary-instances", "2", "--secondary-cpus", "4"]
    prices = ["--secondary-price-per-hour", "0.2", "--secondary-spot-share", "1"]
    learner = ["--spot-saving", "0.5", "--trained-per-second", "1e7"]
    assert costs.main([*ONE, *second, *prices, *learner]) == 0
    said = capsys.readouterr().out
    assert "together                                 0.6 an hour" in said
    assert "897,645 a second (bound by playing, on 15 of 16 CPUs)" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--instances", "0"], "instances must be"),
        (["--hours", "0"], "hours must be a number above 0, got 0.0"),
        (["--agent-steps-per-second", "-1"], "agent_steps_per_second must be"),
        (["--secondary-instances", "2"], "give --secondary-cpus and --secondary-price-per-hour"),
        (["--algorithm", "IMPALA"], "agent_steps_per_second"),
        (["--spot-share", "1"], "spot_saving is 0, so spot would save nothing; give --spot-saving"),
    ],
)
def test_a_wrong_call_says_why(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert costs.main([*ONE, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_other_algorithms_are_priced_by_their_own_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main([*ONE, "--algorithm", "IMPALA", "--agent-steps-per-second", "1000"]) == 0
    assert "1,000 a second (yours)" in capsys.readouterr().out


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/costs.md").read_text()
    blocks = re.findall(r"^```console\n\$ (.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        command, _, shown = block.replace("\\\n", " ").partition("\n")
        assert cli.main(shlex.split(command)[1:]) == 0
        said = capsys.readouterr().out
        assert shown in ("", said)
