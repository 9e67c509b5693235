"""Past selves: earlier weights of the learner as opponents in training.

Sampling follows prioritized fictitious self-play (Vinyals et al. 2019): the lower the learner's win
rate against a past self, the higher the sampling probability. The stored past selves are spread
evenly over the whole training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common.old_runs import rename_keys

MAX_PAST_SELVES = 10
"""Maximum number of stored past selves.

When the store is full, every second past self is removed, starting with the second.
"""

_MAX_ACTIVE_PAST_SELVES = 3
"""Maximum number of past selves that play at the same time in one env runner.

Each past self costs one forward pass per turn.
"""

_PFSP_EXPONENT = 2.0
"""Exponent in the sampling probability of a past self.

The base is 1 minus the learner's win rate.
"""

_RESULT_DECAY = 0.99
"""Factor by which each new result reduces the weights of earlier results.

Earlier results count less, because the learner changes over time.
"""

_CURRENT_STATE_KEYS = {
    "outlived": "wins",
    "met": "num_results",
    "heard": "num_offered",
    "every": "keep_interval",
}
"""Current keys of the state of `PastSelves`, by the keys of version 0.1."""


@dataclass(slots=True)
class _PastSelf:
    """A past self, and the learner's decayed results against it.

    Attributes:
        weights: Argument of `PastSelves.add`.
        act_fn: Policy function with these weights.
        number: Number of the past self, which never changes.
        wins: Weighted sum of the learner's scores.
        num_results: Sum of the weights of the results.
    """

    weights: Any
    act_fn: Callable[..., Any]
    number: int
    wins: float = 0.0
    num_results: float = 0.0


class PastSelves:
    """Collection of past selves and of the learner's results against each past self.

    Args:
        build: Function that creates a policy function from the argument of `add`, such as the
            weights of a module.
    """

    def __init__(self, build: Callable[[Any], Callable[..., Any]]) -> None:
        self._build = build
        self._past_selves: list[_PastSelf] = []  # oldest first
        self._num_offered = 0
        self._keep_interval = 1

    def __len__(self) -> int:
        return len(self._past_selves)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the stored past selves, oldest first.

        A removal does not change the numbers of the remaining past selves.
        """
        return tuple(one.number for one in self._past_selves)

    def add(self, weights: Any) -> None:
        """Store the weights of every k-th call.

        When the store is full, k doubles.
        """
        self._num_offered += 1
        if (self._num_offered - 1) % self._keep_interval:
            return
        if len(self) == MAX_PAST_SELVES:
            self._keep_interval *= 2
            del self._past_selves[1::2]
            if (self._num_offered - 1) % self._keep_interval:
                return
        self._past_selves.append(_PastSelf(weights, self._build(weights), self._num_offered))

    def sampling_probabilities(self) -> NDArray[np.float64]:
        """Return the probability of drawing each past self."""
        # Laplace smoothing estimates a win rate of 50% against a past self without results.
        win_rates = np.array([(one.wins + 1) / (one.num_results + 2) for one in self._past_selves])
        hardness = (1 - win_rates) ** _PFSP_EXPONENT
        probabilities: NDArray[np.float64] = hardness / hardness.sum()
        return probabilities

    def draw(self, random: np.random.Generator, playing: set[int]) -> int:
        """Draw a past self for a new game.

        Args:
            random: Random generator.
            playing: Numbers of the past selves that play in other games.

        Returns:
            The number of the past self.
        """
        probabilities = self.sampling_probabilities()
        in_play = np.isin(self.numbers, list(playing))
        if in_play.sum() >= _MAX_ACTIVE_PAST_SELVES:
            probabilities = np.where(in_play, probabilities, 0.0)
        return self.numbers[random.choice(len(self), p=probabilities / probabilities.sum())]

    def record_result(self, number: int, score: float) -> None:
        """Record the result of a game against a past self.

        Args:
            number: Number of the past self.
            score: 1 if the learner outlived the past self, 0.5 if both were eliminated on the same
                turn, otherwise 0.
        """
        for one in self._past_selves:
            if one.number == number:
                one.wins = _RESULT_DECAY * one.wins + score
                one.num_results = _RESULT_DECAY * one.num_results + 1

    def results(self) -> dict[int, tuple[float, float]]:
        """Return ``wins`` and ``num_results`` of each past self, keyed by its number."""
        return {one.number: (one.wins, one.num_results) for one in self._past_selves}

    def set_mean_results(self, others: Sequence[dict[int, tuple[float, float]]]) -> None:
        """Set the results of each past self to the mean of its results in ``others``."""
        for one in self._past_selves:
            if found := [results[one.number] for results in others if one.number in results]:
                one.wins, one.num_results = np.mean(found, axis=0).tolist()

    def act_fn(self, number: int) -> Callable[..., Any]:
        """Return the policy of a past self, or of the next older one if it was removed."""
        older = [one for one in self._past_selves if one.number <= number]
        return (older or self._past_selves[:1])[-1].act_fn

    def get_state(self) -> dict[str, Any]:
        """Return all past selves and results as a dictionary, for a checkpoint."""
        return {
            "weights": [one.weights for one in self._past_selves],
            "numbers": list(self.numbers),
            "wins": [one.wins for one in self._past_selves],
            "num_results": [one.num_results for one in self._past_selves],
            "num_offered": self._num_offered,
            "keep_interval": self._keep_interval,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `get_state`."""
        state = rename_keys(state, _CURRENT_STATE_KEYS)
        columns = (state[name] for name in ("weights", "numbers", "wins", "num_results"))
        self._past_selves = [
            _PastSelf(weights, self._build(weights), number, wins, num_results)
            for weights, number, wins, num_results in zip(*columns, strict=True)
        ]
        self._num_offered = state["num_offered"]
        self._keep_interval = state["keep_interval"]
