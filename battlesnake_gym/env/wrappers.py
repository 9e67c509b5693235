"""Wrappers for trainers that want observations of another form."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

LEAST_SIDE = 36
"""The smallest picture that the networks made for Atari games take (Nature CNN, Mnih 2015)."""


class Enlarged(gymnasium.ObservationWrapper[NDArray[np.uint8], Any, NDArray[np.uint8]]):
    """Shows every cell as ``factor`` x ``factor`` equal pixels: uint8 [C, H * factor, W * factor].

    Without ``factor``, the smallest that makes both sides `LEAST_SIDE` or more: what
    Stable-Baselines3's ``CnnPolicy`` needs. Raises ``ValueError`` for a factor below 1.
    """

    def __init__(self, env: gymnasium.Env[NDArray[np.uint8], Any], factor: int | None = None):
        super().__init__(env)
        assert isinstance(env.observation_space, Box)
        planes, rows, columns = env.observation_space.shape
        if factor is None:
            factor = -(-LEAST_SIDE // min(rows, columns))
        if factor < 1:
            raise ValueError(f"factor must be 1 or more, got {factor}")
        self.factor = factor
        shape = planes, rows * factor, columns * factor
        self.observation_space = Box(0, 255, shape, np.uint8)

    def observation(self, observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Repeat every cell; any leading axes are kept."""
        taller: NDArray[np.uint8] = observation.repeat(self.factor, axis=-2)
        return taller.repeat(self.factor, axis=-1)
