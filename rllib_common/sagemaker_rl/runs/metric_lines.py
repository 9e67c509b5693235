"""One line of the log for every iteration, and the patterns by which CloudWatch reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping

METRICS = (
    "training_iteration",
    "time_total_s",
    "env_steps",
    "agent_steps",
    "num_episodes",
    "episode_reward_mean",
    "episode_reward_min",
    "episode_reward_max",
    "episode_len_mean",
    "episode_len_min",
    "episode_len_max",
    "Snake_hit_wall",
    "Snake_hit_body",
    "Snake_was_eaten",
    "Killed_another_snake",
    "Starved",
    "Forbidden_move",
    "Longest_snake",
    "transitions_trained",
    "loss",
    "qf_mean",
    "env_steps_per_s",
    "transitions_per_s",
    "cpu_percent",
    "cpu_minutes",
    "ladder_share",
    "elo",
    "elo_low",
    "elo_high",
    "elo_best",
    "ladder_points",
)
"""What stands in a line, as far as the experiment knows it; SageMaker takes 40 at most."""

METRIC_DEFINITIONS = [
    {"Name": name, "Regex": rf"\b{name}=(-?[0-9.]+(?:e[+-]?[0-9]+)?)"} for name in METRICS
]
"""``metric_definitions`` of an estimator.

>>> import re
>>> re.findall(METRIC_DEFINITIONS[0]["Regex"], "training_iteration=2 episode_reward_mean=-1.5")
['2']
"""


REWARDS = ("episode_reward_mean", "episode_reward_max")
"""What a line tells once more at its end, as RLlib did years ago: ``RLEstimator`` looks for
that with ``default_metric_definitions(RLToolkit.RAY)``, as published examples do."""


def line(numbers: Mapping[str, float]) -> str:
    """The line for one iteration; a number that does not exist yet is left out.

    >>> line({"training_iteration": 2, "episode_reward_mean": float("nan"), "env_steps": 2e6})
    'training_iteration=2 env_steps=2000000'
    >>> line({"training_iteration": 2, "episode_reward_mean": -1.5})
    'training_iteration=2 episode_reward_mean=-1.5 (episode_reward_mean: -1.5)'
    """
    told = {name: numbers[name] for name in METRICS if math.isfinite(numbers.get(name, math.nan))}
    words = [f"{name}={value:.8g}" for name, value in told.items()]
    words += [f"({name}: {told[name]:.8g})" for name in REWARDS if name in told]
    return " ".join(words)
