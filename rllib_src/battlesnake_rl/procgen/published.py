"""What agents of OpenAI reached on 200 easy levels, after how many frames.

The figures are of github.com/openai/train-procgen, ``train_procgen/results/easy-200-run*``: of each
game three trainings, ``progress-GAME-train.csv`` on the levels of the training and
``progress-GAME-test.csv`` on all, column ``eprewmean``, the mean reward of the last 100 episodes.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_rl.procgen.procgen_games import normalized_score

FILE = Path(__file__).with_name("published_easy_200.csv")
"""Rewards by game, levels (``train`` or ``test``) and frames: a column for each training."""
TRAININGS = ("run0", "run1", "run2")
PROTOCOL = {"distribution_mode": "easy", "num_levels": 200}
"""The ``env_config`` that they hold for."""


def score(game: str, levels: str, frames: int, env_config: Mapping[str, Any]) -> float:
    """Their trainings' mean normalized score on ``train`` or ``test`` levels after ``frames``.

    Between two figures it is interpolated; NaN for another protocol, and before the first and after
    the last figure.
    """
    theirs = curves().get((game, levels))
    if theirs is None or any(env_config[name] != value for name, value in PROTOCOL.items()):
        return math.nan
    return float(np.interp(frames, *theirs, left=math.nan, right=math.nan))


@functools.cache
def curves() -> dict[tuple[str, str], NDArray[np.float64]]:
    """By game and levels: frames, rising, and mean normalized scores, [2, points]."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            rewards = [float(row[name]) for name in TRAININGS]
            mean = normalized_score(sum(rewards) / len(rewards), row["game"])
            points.setdefault((row["game"], row["levels"]), []).append((float(row["frames"]), mean))
    return {of: np.array(there).T for of, there in points.items()}
