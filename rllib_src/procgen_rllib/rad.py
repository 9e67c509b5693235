"""Reinforcement learning with augmented data (Laskin et al. 2020): ``rad: true``.

The agent plays on shifted frames, and learns from those that it has seen. Of the paper's
augmentations this is the random crop, the one with the largest gain in its Procgen experiments
(bigfish). Each game has a window of its own, and gets another one when its turns of an iteration
have been played; tests are on frames as they are, which is where the middle window would be.

The authors' program (pokaxpoka/rad_procgen) draws 75 pixels and shows 64 of them, from 0 to 10 away
from the corner. The games draw 64 here: frames are shifted by as much, and their outermost pixels
are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

REACH = 5
"""The largest shift in pixels: (75 - 64) // 2."""


class Windows:
    """Shifts the frames of ``games`` games, each game's as others of its ``turns`` in a row."""

    def __init__(self, games: int, turns: int, seed: Sequence[int]) -> None:
        self._shape, self._turns = (2, games), turns
        self._draw = np.random.default_rng(list(seed))
        self._shown = 0

    def __call__(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What is to be seen of ``frames``, (games, height, width, colours)."""
        if self._shown % self._turns == 0:
            self._shifts = self._draw.integers(-REACH, REACH + 1, self._shape)
        self._shown += 1
        return shifted(frames, *self._shifts)


def shifted(
    frames: NDArray[np.uint8], down: NDArray[np.integer], right: NDArray[np.integer]
) -> NDArray[np.uint8]:
    """Windows (N, H, W, C) that begin ``down`` and ``right`` pixels (N,) from where frames do.

    Beyond the frame its outermost pixels are repeated.
    """
    count, height, width, _ = frames.shape
    rows = np.clip(np.arange(height) + down[:, None], 0, height - 1)
    columns = np.clip(np.arange(width) + right[:, None], 0, width - 1)
    windows: NDArray[np.uint8] = frames[
        np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]
    ]
    return windows


def begin(*, env_runner: Any, env: Any, **kwargs: Any) -> None:
    """What RLlib calls when a runner has made its games: let them show their frames so."""
    seed = (env_runner.config.seed or 0, env_runner.worker_index or 0, 1)
    turns = env_runner.config.get_rollout_fragment_length(env_runner.worker_index or 0)
    env.show = Windows(env.num_envs, turns, seed)
