"""The log's lines and CloudWatch's patterns fit each other."""

import math
import re

import pytest

from sagemaker_rl.runs.metric_lines import METRIC_DEFINITIONS, METRICS, line


@pytest.mark.parametrize("number", [0.0, -1.25, 17.0, 1234567.0, 3e-7, -2.5e12])
def test_every_number_comes_back(number: float) -> None:
    text = "algo-1 | " + line(dict.fromkeys(METRICS, number)) + " more"
    for definition in METRIC_DEFINITIONS:
        (found,) = re.findall(definition["Regex"], text)
        assert math.isclose(float(found), number, rel_tol=1e-6), definition["Name"]


def test_what_is_not_there_yet_is_left_out() -> None:
    text = line({"training_iteration": 1, "episode_reward_mean": math.nan, "env_steps": 64})
    assert text == "training_iteration=1 env_steps=64"


def test_the_sdk_s_own_patterns_find_the_reward() -> None:
    """``metric_definitions`` as published examples have them."""
    pytest.importorskip("sagemaker", reason="needs the extra sagemaker")
    from sagemaker.rl import RLEstimator, RLToolkit

    told = line({"episode_reward_mean": -12.5, "episode_reward_max": 30.0, "env_steps": 64})
    definitions = RLEstimator.default_metric_definitions(RLToolkit.RAY)
    found = {one["Name"]: re.search(one["Regex"], told) for one in definitions}
    assert {name: match and float(match[1]) for name, match in found.items()} == {
        "episode_reward_mean": -12.5,
        "episode_reward_max": 30.0,
    }


def test_there_are_many_and_sagemaker_takes_them() -> None:
    assert 20 <= len(METRIC_DEFINITIONS) <= 40
