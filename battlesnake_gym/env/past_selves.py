"""The learner as it was: earlier weights that sit in training games, the hard ones more often.

Prioritised fictitious self-play (Vinyals et al. 2019): who is drawn depends on how seldom the
learner outlives it. The selves kept are spread over all of training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_PAST_SELVES = 10
"""Past selves at most; of more, every second is given up, the first one stays."""

_MAX_ACTIVE = 3
"""Different past selves that play in the games of one runner at the same time: each costs a forward
pass of its own a turn."""

_PFSP_EXPONENT = 2.0
"""Power of how often the learner does not outlive a past self, in the chance that it is drawn."""

_RESULT_DECAY = 0.99
"""What a result counts after each further one: the learner changes."""

_OLD_STATE_KEYS = {
    "outlived": "wins",
    "met": "num_results",
    "heard": "num_offered",
    "every": "keep_interval",
}
"""Keys of `PastSelves.get_state` in checkpoints of version 0.1, and their current names."""


class PastSelves:
    """Past selves and how the learner does against them.

    ``build`` makes of what `add` is given, such as a module's weights, a function that plays.
    """

    def __init__(self, build: Callable[[Any], Callable[..., Any]]) -> None:
        self._build = build
        self._weights: list[Any] = []
        self._act_fns: list[Callable[..., Any]] = []
        self._wins: list[float] = []
        self._num_results: list[float] = []
        self._numbers: list[int] = []
        self._num_offered = 0
        self._keep_interval = 1

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Names of those that are kept, the oldest first: they hold when others are given up."""
        return tuple(self._numbers)

    def add(self, weights: Any) -> None:
        """Hear of the present weights; they are kept if it is their turn."""
        self._num_offered += 1
        if (self._num_offered - 1) % self._keep_interval:
            return
        if len(self) == MAX_PAST_SELVES:
            self._keep_interval *= 2
            for part in (
                self._weights,
                self._act_fns,
                self._wins,
                self._num_results,
                self._numbers,
            ):
                del part[1::2]
            if (self._num_offered - 1) % self._keep_interval:
                return
        self._keep(weights, self._num_offered, 0.0, 0.0)

    def _keep(self, weights: Any, number: int, wins: float, num_results: float) -> None:
        self._weights.append(weights)
        self._act_fns.append(self._build(weights))
        self._numbers.append(number)
        self._wins.append(wins)
        self._num_results.append(num_results)

    def sampling_probabilities(self) -> NDArray[np.float64]:
        """The chance of each to be drawn."""
        # Who was not met yet counts as one that wins half of the time.
        win_rates = (np.array(self._wins) + 1) / (np.array(self._num_results) + 2)
        hardness = (1 - win_rates) ** _PFSP_EXPONENT
        probabilities: NDArray[np.float64] = hardness / hardness.sum()
        return probabilities

    def draw(self, random: np.random.Generator, playing: set[int]) -> int:
        """The number of one for a game that begins, while those in ``playing`` play in others."""
        probabilities = self.sampling_probabilities()
        in_play = np.isin(self._numbers, list(playing))
        if in_play.sum() >= _MAX_ACTIVE:
            probabilities = np.where(in_play, probabilities, 0.0)
        return self._numbers[random.choice(len(self), p=probabilities / probabilities.sum())]

    def record_result(self, number: int, score: float) -> None:
        """The learner has outlived ``number`` (1), has not (0), or both died at once (1/2)."""
        if number in self._numbers:
            index = self._numbers.index(number)
            self._wins[index] = _RESULT_DECAY * self._wins[index] + score
            self._num_results[index] = _RESULT_DECAY * self._num_results[index] + 1

    def act(self, number: int, *inputs: NDArray[Any]) -> Any:
        """What one of them answers to ``seen``; for one given up, the next older one answers."""
        kept = max((n for n in self._numbers if n <= number), default=self._numbers[0])
        return self._act_fns[self._numbers.index(kept)](*inputs)

    def get_state(self) -> dict[str, Any]:
        """Everything, in numbers."""
        return {
            "weights": list(self._weights),
            "numbers": list(self._numbers),
            "wins": list(self._wins),
            "num_results": list(self._num_results),
            "num_offered": self._num_offered,
            "keep_interval": self._keep_interval,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over what `get_state` gave."""
        state = {_OLD_STATE_KEYS.get(name, name): value for name, value in state.items()}
        for part in (self._weights, self._act_fns, self._wins, self._num_results, self._numbers):
            part.clear()
        columns = (state[name] for name in ("weights", "numbers", "wins", "num_results"))
        for one in zip(*columns, strict=True):
            self._keep(*one)
        self._num_offered, self._keep_interval = (
            state["num_offered"],
            state["keep_interval"],
        )
