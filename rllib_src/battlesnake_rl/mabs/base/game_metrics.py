"""Metrics of finished games, averaged per game.

Env runners report sums over games. The sums of several env runners can be added. `RecentGames`
converts the sums to means.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.mdp.rewards import EVENTS, METRICS, TurnBatch

# These strings are RLlib's metric names; this module does not import Ray.
_EPISODE_RETURN_MEAN, _EPISODE_LEN_MEAN = "episode_return_mean", "episode_len_mean"
_NUM_EPISODES = "num_episodes"
_SUM_SUFFIX = "_sum"

EXTREME_METRICS = {
    "episode_return_min": min,
    "episode_return_max": max,
    "episode_len_min": min,
    "episode_len_max": max,
}
"""Extreme metrics of finished games.

Each key is RLlib's name for the metric. Each value is the function that combines two extremes.
"""

GAME_METRICS = (_EPISODE_RETURN_MEAN, _EPISODE_LEN_MEAN, *METRICS, "Longest_snake")
"""Metrics averaged per game.

The episode return is the mean over the snakes of a game. The episode length is in turns.
``Longest_snake`` is the maximum length of a snake, in cells. All other metrics are summed over the
snakes of a game.
"""


class GameStatistics:
    """Accumulator of game metrics for N games with S seats."""

    def __init__(self, games: int, seats: int) -> None:
        self._returns = np.zeros((games, seats))
        self._seats = np.zeros((games, seats), dtype=np.bool_)
        self._events = {name: np.zeros(games) for name in METRICS}
        self._longest = np.zeros(games)
        self._sums = dict.fromkeys((*GAME_METRICS, _NUM_EPISODES), 0.0)
        self._extremes: dict[str, float] = {}

    def reset(self) -> None:
        """Reset all games and discard the metrics of unfinished games."""
        self._reset_games(np.ones(len(self._returns), dtype=np.bool_))

    def update(
        self,
        turn: TurnBatch,
        acted: NDArray[np.bool_],
        rewards: NDArray[np.float32],
        infos: dict[str, Any],
        counted: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.bool_]:
        """Add the metrics of one step of the vector environment.

        Args:
            turn: ``last_turn`` of the environment.
            acted: bool (N, S), the learner's seats that acted; only these seats count.
            rewards: float32 (N, S), rewards of the step.
            infos: Infos of the step.
            counted: bool (N,), games whose metrics count; None counts all games.

        Returns:
            bool (N,), counted games that finished in this step.
        """
        self._reset_games(infos["reset"])
        self._seats |= acted
        self._returns += rewards * acted
        for name, events in METRICS.items():
            for event in events:
                self._events[name] += (EVENTS[event](turn) * acted).sum(-1)
        self._longest = np.maximum(self._longest, infos["length"].max(-1))
        ended: NDArray[np.bool_] = ~infos["alive"].any(-1) & ~infos["reset"]
        if counted is not None:
            ended &= counted
        if ended.any():
            self._add_finished_games(ended, infos["turn"])
        return ended

    def drain(self) -> dict[str, float]:
        """Return the metrics of the games finished since the last call.

        The result contains `EXTREME_METRICS`, and sums over games of all other metrics. The key of
        a sum is the metric's name followed by `_SUM_SUFFIX`.
        """
        sums = {
            name if name == _NUM_EPISODES else name + _SUM_SUFFIX: value
            for name, value in self._sums.items()
        }
        self._sums = dict.fromkeys(self._sums, 0.0)
        extremes, self._extremes = self._extremes, {}
        return sums | extremes

    def _reset_games(self, games: NDArray[np.bool_]) -> None:
        """Set the metrics of the selected ``games``, bool (N,), to 0."""
        self._returns[games] = 0
        self._seats[games] = False
        for counts in self._events.values():
            counts[games] = 0
        self._longest[games] = 0

    def _add_finished_games(self, ended: NDArray[np.bool_], turns: NDArray[np.int32]) -> None:
        """Add the metrics of the finished games to the sums and extremes.

        Args:
            ended: bool (N,), finished games.
            turns: int32 (N,), number of turns of each game.
        """
        returns = self._returns[ended].sum(-1) / self._seats[ended].sum(-1)
        self._sums[_NUM_EPISODES] += float(ended.sum())
        self._sums[_EPISODE_RETURN_MEAN] += float(returns.sum())
        self._sums[_EPISODE_LEN_MEAN] += float(turns[ended].sum())
        lengths = turns[ended]
        for name, values in (("episode_return", returns), ("episode_len", lengths)):
            for one in (f"{name}_min", f"{name}_max"):
                kept = [self._extremes[one]] if one in self._extremes else []
                self._extremes[one] = EXTREME_METRICS[one]([*kept, *map(float, values)])
        self._sums["Longest_snake"] += float(self._longest[ended].sum())
        for name, counts in self._events.items():
            self._sums[name] += float(counts[ended].sum())


class RecentGames:
    """Game metrics of the latest iterations.

    These iterations have at least ``min_games`` games in total. Long games end rarely. Without the
    games of earlier iterations, the training curves would have gaps.
    """

    def __init__(self, min_games: int) -> None:
        self._min_games = min_games
        self.iterations: deque[dict[str, float]] = deque()
        """Metric sums, extremes and number of games of each iteration, oldest first.

        Checkpoints include this list.
        """

    def average(self, results: dict[str, Any]) -> None:
        """Replace the sums in an iteration's ``results`` with means over the latest games.

        Means and `EXTREME_METRICS` are NaN until a game has ended.
        """
        sums = {name: float(results.pop(name + _SUM_SUFFIX, 0.0)) for name in GAME_METRICS}
        extremes = {name: float(results[name]) for name in EXTREME_METRICS if name in results}
        count = {_NUM_EPISODES: float(results.get(_NUM_EPISODES, 0))}
        self.iterations.append(sums | count | extremes)
        while (
            len(self.iterations) > 1 and self._sum_metric(_NUM_EPISODES, first=1) >= self._min_games
        ):
            self.iterations.popleft()
        games = self._sum_metric(_NUM_EPISODES)
        for name in GAME_METRICS:
            results[name] = self._sum_metric(name) / games if games else float("nan")
        for name, most in EXTREME_METRICS.items():
            known = [one.get(name, math.nan) for one in self.iterations]
            known = [value for value in known if not math.isnan(value)]
            results[name] = most(known) if known else math.nan

    def _sum_metric(self, name: str, first: int = 0) -> float:
        """Return the sum of a metric over the stored iterations from the index ``first``.

        RLlib reports NaN for an iteration without a fragment; such an iteration counts as 0.
        """
        return float(np.nansum([sums[name] for sums in islice(self.iterations, first, None)]))
