"""Prioritized level replay (Jiang et al. 2021): levels with more to learn, more often.

``level_replay: true`` goes with every algorithm of ours. A level's score is the mean size of the
advantages when it was last played. The chance of a level is a mix of two: one falls with its rank
among the scores, the other grows with the number of levels begun since its last turn. Until all
levels have been played once, only new ones are.

The values and this last rule are those of the authors' program (facebookresearch/level-replay) on
Procgen. Otherwise than there, chances stay as they are within an iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.numpy import convert_to_numpy

from procgen_rllib.env_config import complete

TEMPERATURE = 0.1
"""A level's chance falls as its rank to the power of one over this."""
STALENESS = 0.1
"""What part of the chance is for levels that have not been played for long."""


def check(config: Any) -> None:
    """Refuse what levels cannot be replayed with.

    Raises:
        ValueError: naming the setting, its value and the remedy.
    """
    env_config = complete(config.env_config)
    if env_config["num_levels"] == 0:
        raise ValueError(
            "level_replay chooses among levels, but num_levels is 0: all there are; give some, "
            "such as num_levels 200"
        )
    for key, honoured in (("provider", "envpool"), ("use_sequential_levels", False)):
        if env_config[key] != honoured:
            raise ValueError(f"level_replay needs {key} {honoured}, got {env_config[key]}")
    if config.num_learners > 1:
        raise ValueError(
            f"num_learners is {config.num_learners}, but level_replay needs all games in one "
            "learner; give num_learners 0 or 1"
        )
    if config.level_replay_temperature <= 0:
        raise ValueError(
            f"level_replay_temperature must be positive, got {config.level_replay_temperature}"
        )
    if not 0 <= config.level_replay_staleness <= 1:
        raise ValueError(
            f"level_replay_staleness must be between 0 and 1, got {config.level_replay_staleness}"
        )


class Stay(NamedTuple):
    """Some turns of one episode on one level."""

    level: int
    """Its number."""
    begun: bool
    """Whether the episode began with these turns."""
    clock: int
    """When the last of them was played."""
    score: float
    """The mean size of their advantages."""


class LevelSampler:
    """What is known of the ``count`` levels from ``start``, and the chance of each to be next."""

    def __init__(self, start: int, count: int, *, temperature: float, staleness: float) -> None:
        self._start = start
        self._temperature, self._staleness = temperature, staleness
        self._scores = np.zeros(count)
        self._seen = np.zeros(count, dtype=np.bool_)
        self._begun_since = np.zeros(count)

    def chances(self) -> NDArray[np.float64]:
        """The chance of each level, (count,)."""
        if not self._seen.all():
            unseen: NDArray[np.float64] = ~self._seen / (~self._seen).sum()
            return unseen
        ranks = np.empty(len(self._scores))
        ranks[np.argsort(-self._scores, kind="stable")] = np.arange(1, len(ranks) + 1)
        chances: NDArray[np.float64] = (1 / ranks) ** (1 / self._temperature)
        chances *= (1 - self._staleness) / chances.sum()
        if self._begun_since.any():
            chances += self._staleness * self._begun_since / self._begun_since.sum()
        chances /= chances.sum()
        return chances

    def watch(self, stays: Sequence[Stay]) -> None:
        """Learn what has been played since the last time."""
        in_order = sorted(stays, key=lambda stay: stay.clock)
        for stay in in_order:
            self._scores[stay.level - self._start] = stay.score
            self._seen[stay.level - self._start] = True
        begun = [stay.level - self._start for stay in in_order if stay.begun]
        self._begun_since += len(begun)
        for place, level in enumerate(begun, 1):
            self._begun_since[level] = len(begun) - place

    def state(self) -> dict[str, NDArray[Any]]:
        """All that is known."""
        return {"scores": self._scores, "seen": self._seen, "begun_since": self._begun_since}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave; of another number of levels nothing is known."""
        if len(state["scores"]) == len(self._scores):
            self._scores, self._seen, self._begun_since = (
                np.array(state[name]) for name in ("scores", "seen", "begun_since")
            )


def sampler(config: Any) -> LevelSampler:
    """What a learner begins with."""
    env_config = complete(config.env_config)
    return LevelSampler(
        env_config["start_level"],
        env_config["num_levels"],
        temperature=config.level_replay_temperature,
        staleness=config.level_replay_staleness,
    )


class Scores(ConnectorV2):  # type: ignore[misc]
    """Tells a `LevelSampler` of each batch, when advantages are there and no turn is left out."""

    def __init__(self, sampler: LevelSampler) -> None:
        super().__init__()
        self._sampler = sampler

    def __call__(
        self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """``batch`` as it is."""
        (columns,) = batch.values()
        real = convert_to_numpy(columns[Columns.LOSS_MASK]).astype(bool)
        sizes = np.abs(convert_to_numpy(columns[Postprocessing.ADVANTAGES]))[real]
        ends = np.cumsum([len(one) - 1 for one in episodes])
        self._sampler.watch(
            [
                Stay(
                    level=int(one.get_infos(0)["level_seed"]),
                    begun=one.t_started == 0,
                    clock=int(one.get_infos(len(one) - 1)["clock"]),
                    score=float(part.mean()),
                )
                for one, part in zip(episodes, np.split(sizes, ends[:-1]), strict=True)
            ]
        )
        return batch


class Draw:
    """Says which of the ``count`` levels from ``start`` a game plays next."""

    def __init__(self, start: int, count: int, seed: Sequence[int]) -> None:
        self.chances: NDArray[np.float64] = np.full(count, 1 / count)
        self._start, self._draw = start, np.random.default_rng(list(seed))

    def __call__(self) -> int:
        """The number of the next level."""
        return self._start + int(self._draw.choice(len(self.chances), p=self.chances))


def begin(*, env_runner: Any, env: Any, **kwargs: Any) -> None:
    """What RLlib calls when a runner has made its games: let them ask which level to play."""
    seed = (env_runner.config.seed or 0, env_runner.worker_index or 0)
    env.draw_level = Draw(env.env_config["start_level"], env.env_config["num_levels"], seed)


def spread(learner_group: Any, env_runner_group: Any) -> None:
    """Tell all runners what the learner has come to think of the levels."""
    (chances,) = (answer.get() for answer in learner_group.foreach_learner(_chances_of_learner))

    def tell(runner: Any) -> None:
        if runner.env is not None:
            runner.env.unwrapped.draw_level.chances = chances

    env_runner_group.foreach_env_runner(tell)


def _chances_of_learner(learner: Any) -> NDArray[np.float64]:
    chances: NDArray[np.float64] = learner.level_sampler.chances()
    return chances
