"""One line of the log for every iteration, and the patterns by which CloudWatch reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping

METRICS = (
    "training_iteration",
    "episode_reward_mean",
    "episode_len_mean",
    "env_steps",
    "elo",
    "elo_low",
    "elo_high",
    "elo_best",
)
"""What stands in a line, as far as the experiment knows it."""

METRIC_DEFINITIONS = [
    {"Name": name, "Regex": rf"\b{name}=(-?[0-9.]+(?:e[+-]?[0-9]+)?)"} for name in METRICS
]
"""``metric_definitions`` of an estimator.

>>> import re
>>> re.findall(METRIC_DEFINITIONS[1]["Regex"], "training_iteration=2 episode_reward_mean=-1.5")
['-1.5']
"""


REWARD = "episode_reward_mean"
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
    if REWARD in told:
        words.append(f"({REWARD}: {told[REWARD]:.8g})")
    return " ".join(words)
