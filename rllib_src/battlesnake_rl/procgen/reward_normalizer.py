"""Rewards in units of what a game's discounted returns vary by, as baselines' VecNormalize has it.

Games differ in what they pay, from 1 to 40 an episode; so scaled, one learning rate and one value
clip fit them all. The returns of all games are followed turn by turn, whichever runner played them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from battlesnake_rl.mabs.ppo.ppo import Rollout

_EPSILON = 1e-8
"""Added to the variance before its root is taken."""


class RewardNormalizer:
    """Divides rewards by the running standard deviation of discounted returns, then clips them.

    The return of a game is what it was, times ``gamma``, plus the reward; it begins at 0 with each
    episode. Each turn's returns go into the running variance before its rewards are divided.
    """

    def __init__(self, gamma: float, clip: float) -> None:
        self._gamma, self._clip = gamma, clip
        self._mean, self._variance, self._count = 0.0, 1.0, 1e-4
        self._returns: NDArray[np.float64] = np.zeros(0)

    def scale(self, rollouts: Sequence[Rollout]) -> None:
        """Scale the rewards of rollouts of as many turns each, with one seat a game, in place.

        They go on where those before ended, with the games in the same order.
        """
        rewards, acted, out, cut = (
            np.concatenate([getattr(one, name)[..., 0] for one in rollouts], axis=1)
            for name in ("rewards", "acted", "terminateds", "truncateds")
        )
        scaled = np.array(
            [self.scale_turn(*turn) for turn in zip(rewards, acted, out | cut, strict=True)]
        )
        ends = np.cumsum([one.rewards.shape[1] for one in rollouts])[:-1]
        for one, part in zip(rollouts, np.split(scaled, ends, axis=1), strict=True):
            one.rewards = part[..., None]

    def scale_turn(
        self, rewards: NDArray[np.floating], played: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """The scaled rewards of the next turn of N games, each (N,); only the ``played`` count."""
        if len(self._returns) != len(rewards):
            self._returns = np.zeros(len(rewards))
        self._returns[played] = self._returns[played] * self._gamma + rewards[played]
        if played.any():
            self._update_moments(self._returns[played])
        self._returns[ended] = 0.0
        scaled = rewards / np.sqrt(self._variance + _EPSILON)
        clipped: NDArray[np.float32] = np.clip(scaled, -self._clip, self._clip).astype(np.float32)
        return clipped

    def _update_moments(self, returns: NDArray[np.float64]) -> None:
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
