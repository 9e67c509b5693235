"""Reward normalization by the variance of discounted returns.

The method is the same as in `VecNormalize` of OpenAI baselines. The episode rewards of different
games range from 1 to 40. Normalized rewards allow one learning rate and one value clip for all
games. The returns of all games are updated step by step, in an order that is independent of the env
runners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.typing import NDArray

from battlesnake_rl.mabs.ppo.ppo import Rollout

_EPSILON = 1e-8
"""Constant that is added to the variance before the square root."""

_MOMENTS = {"mean": "mean", "variance": "var", "count": "count"}
"""Attributes of `RunningMeanStd`, keyed by their names in a checkpoint."""


class RewardNormalizer:
    """Normalizer that divides rewards by the standard deviation of discounted returns.

    The standard deviation is a running estimate. The return of a game is its previous return times
    ``gamma`` plus the reward; each episode starts with the return 0. The running variance already
    includes the returns of a step when the rewards of this step are divided. The divided rewards
    are clipped.
    """

    def __init__(self, gamma: float, clip: float) -> None:
        self._gamma, self._clip = gamma, clip
        self._moments = RunningMeanStd()  # type: ignore[no-untyped-call]
        self._returns: NDArray[np.float64] = np.zeros(0)

    def normalize_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        """Normalize the rewards of rollouts in place.

        All rollouts have the same number of turns and one seat per game. The rollouts must continue
        the previous rollouts, with the games in the same order.
        """
        rewards, acted, out, cut = (
            np.concatenate([getattr(one, name)[..., 0] for one in rollouts], axis=1)
            for name in ("rewards", "acted", "terminateds", "truncateds")
        )
        scaled = np.array(
            [self.normalize_turn(*turn) for turn in zip(rewards, acted, out | cut, strict=True)]
        )
        ends = np.cumsum([one.rewards.shape[1] for one in rollouts])[:-1]
        for one, part in zip(rollouts, np.split(scaled, ends, axis=1), strict=True):
            one.rewards = part[..., None]

    def normalize_turn(
        self, rewards: NDArray[np.floating], played: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return the normalized rewards of the next step of N games, float32 (N,).

        Args:
            rewards: float (N,), rewards of the step.
            played: bool (N,), whether the step counts; other steps have no effect on the returns.
            ended: bool (N,), whether the episode ended.
        """
        if len(self._returns) != len(rewards):
            self._returns = np.zeros(len(rewards))
        self._returns[played] = self._returns[played] * self._gamma + rewards[played]
        if played.any():
            self._moments.update(self._returns[played])  # type: ignore[no-untyped-call]
        self._returns[ended] = 0.0
        scaled = rewards / np.sqrt(self._moments.var + _EPSILON)
        clipped: NDArray[np.float32] = np.clip(scaled, -self._clip, self._clip).astype(np.float32)
        return clipped

    def get_moments(self) -> dict[str, float]:
        """Return the running mean, variance and count of the returns.

        The returns of running games are not included.
        """
        return {name: float(getattr(self._moments, key)) for name, key in _MOMENTS.items()}

    def set_moments(self, state: Mapping[str, float]) -> None:
        """Set the running moments to a result of `get_moments`."""
        for name, key in _MOMENTS.items():
            setattr(self._moments, key, state[name])
