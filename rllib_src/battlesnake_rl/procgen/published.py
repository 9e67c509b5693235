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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from battlesnake_rl.procgen.procgen_games import normalized_score

FILE = Path(__file__).with_name("published_easy_200.csv")
"""Rewards by game, levels (``train`` or ``test``) and frames: a column for each training."""
TRAININGS = ("run0", "run1", "run2")
PROTOCOL = {"distribution_mode": "easy", "num_levels": 200}
"""The ``env_config`` that they hold for."""


class PublishedCurve(NamedTuple):
    """Normalized scores of all trainings of one game."""

    frames: NDArray[np.float64]
    """[points], rising."""
    scores: NDArray[np.float64]
    """[trainings, points]."""


def curve(game: str, levels: str, env_config: Mapping[str, Any]) -> PublishedCurve | None:
    """The scores on ``train`` or ``test`` levels; None for another protocol than theirs."""
    if any(env_config[name] != value for name, value in PROTOCOL.items()):
        return None
    return _curves().get((game, levels))


def score(game: str, levels: str, frames: int, env_config: Mapping[str, Any]) -> float:
    """The mean score of their trainings after so many frames, between the figures next to it.

    NaN for another protocol, and before the first and after the last figure.
    """
    theirs = curve(game, levels, env_config)
    if theirs is None or not theirs.frames[0] <= frames <= theirs.frames[-1]:
        return math.nan
    return float(np.interp(frames, theirs.frames, theirs.scores.mean(0)))


@functools.cache
def _curves() -> dict[tuple[str, str], PublishedCurve]:
    """By game and levels."""
    points: dict[tuple[str, str], list[tuple[float, list[float]]]] = {}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            scores = [normalized_score(float(row[name]), row["game"]) for name in TRAININGS]
            points.setdefault((row["game"], row["levels"]), []).append(
                (float(row["frames"]), scores)
            )
    return {
        of: PublishedCurve(
            np.array([frames for frames, _ in there]), np.array([s for _, s in there]).T
        )
        for of, there in points.items()
    }
