"""Rewards in units of what a game's discounted returns vary by, as baselines' VecNormalize has it.

Games differ in what they pay, from 1 to 40 an episode; so scaled, one learning rate and one value
clip fit them all. The returns of all games are followed turn by turn, whichever runner played them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-8
"""Added to the variance before its root is taken."""


class Part(NamedTuple):
    """Some turns of one episode that were played one after the other."""

    episode: str
    """The same in all parts of an episode."""
    clocks: NDArray[np.integer]
    """When each turn was played: turns of one clock are counted together; (turns,)."""
    rewards: NDArray[np.floating]
    """(turns,)."""


class RewardNormalizer:
    """Divides rewards by the running standard deviation of discounted returns, then clips them.

    The return of a game is what it was, times ``gamma``, plus the reward; it begins at 0 with each
    episode. Each clock's returns go into the running variance before its rewards are divided.
    """

    def __init__(self, gamma: float, clip: float) -> None:
        self._gamma, self._clip = gamma, clip
        self._mean, self._variance, self._count = 0.0, 1.0, 1e-4
        self._returns: dict[str, float] = {}
        self._running: NDArray[np.float64] | None = None

    def __call__(self, parts: Sequence[Part]) -> list[NDArray[np.float32]]:
        """The scaled rewards of each part, in the order of ``parts``."""
        lengths = [len(part.rewards) for part in parts]
        places = {part.episode: place for place, part in enumerate(parts)}
        game = np.repeat([places[part.episode] for part in parts], lengths)
        clocks = np.concatenate([part.clocks for part in parts])
        rewards = np.concatenate([part.rewards for part in parts]).astype(np.float64)
        returns = np.zeros(len(parts))
        for episode, place in places.items():
            returns[place] = self._returns.get(episode, 0.0)
        order = np.argsort(clocks, kind="stable")
        for turns in np.split(order, np.flatnonzero(np.diff(clocks[order])) + 1):
            those = game[turns]
            returns[those] = returns[those] * self._gamma + rewards[turns]
            self._count_in(returns[those])
            rewards[turns] /= np.sqrt(self._variance + EPSILON)
        # What has ended does not come again, and so drops out the next time.
        self._returns = {episode: float(returns[place]) for episode, place in places.items()}
        scaled = np.clip(rewards, -self._clip, self._clip).astype(np.float32)
        return np.split(scaled, np.cumsum(lengths)[:-1])

    def of_turn(
        self, rewards: NDArray[np.floating], played: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """The scaled rewards of one turn of N games, each (N,): the next clock of those played."""
        if self._running is None:
            self._running = np.zeros(len(rewards))
        self._running[played] = self._running[played] * self._gamma + rewards[played]
        if played.any():
            self._count_in(self._running[played])
        self._running[ended] = 0.0
        scaled = rewards / np.sqrt(self._variance + EPSILON)
        clipped: NDArray[np.float32] = np.clip(scaled, -self._clip, self._clip).astype(np.float32)
        return clipped

    def _count_in(self, returns: NDArray[np.float64]) -> None:
        """Add to the running moments, as two samples are joined (Chan et al. 1979)."""
        count, difference = len(returns), returns.mean() - self._mean
        total = self._count + count
        squares = (
            self._variance * self._count
            + returns.var() * count
            + difference**2 * self._count * count / total
        )
        self._mean += difference * count / total
        self._variance, self._count = squares / total, total

    def state(self) -> dict[str, float]:
        """The running moments; games begin anew where a run is resumed, and so do their returns."""
        return {"mean": self._mean, "variance": self._variance, "count": self._count}

    def restore(self, state: Mapping[str, float]) -> None:
        """Go on from what `state` gave."""
        self._mean, self._variance, self._count = (
            float(state[name]) for name in ("mean", "variance", "count")
        )
