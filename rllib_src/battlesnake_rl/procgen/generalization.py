"""The test curve beside the training curve: now and then, episodes on levels of the test.

``evaluation_interval`` says after how many iterations, ``evaluation_duration`` how many episodes,
and ``evaluation_config.env_config`` what differs from the training's: all levels there are, unless
it says otherwise. RLlib's own way of it takes the episodes that end first, which are short ones.
"""

from __future__ import annotations

import copy
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EVALUATION_RESULTS
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from battlesnake_rl.procgen.procgen_env_config import complete
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_episodes import acting, play, score

_DEFAULTS: dict[str, Any] = {"env_config": {"num_levels": 0, "start_level": 0}, "explore": True}
"""What ``evaluation_config`` begins as: all levels, and actions drawn as in training."""

COLUMNS = {"test_reward_mean": f"{EVALUATION_RESULTS}/{ENV_RUNNER_RESULTS}/reward"}
"""Columns of ``progress.csv`` for the test curve."""

_NUM_TEST_ENVS = 64

_HONOURED: dict[str, tuple[Any, ...]] = {
    "evaluation_duration_unit": ("episodes",),
    "evaluation_num_env_runners": (0,),
    "evaluation_parallel_to_training": (False,),
}
"""Settings of RLlib's evaluation that have but one value here."""


def set_up(config: AlgorithmConfig) -> None:
    """Let ``config`` test in this way, if it has an ``evaluation_interval``."""
    config.evaluation(
        custom_evaluation_function=on_test_levels, evaluation_config=copy.deepcopy(_DEFAULTS)
    )
    config.callbacks(on_train_result=forget_older)


def forget_older(*, algorithm: Algorithm, result: dict[str, Any], **kwargs: Any) -> None:
    """Take out of an iteration's results what RLlib repeats of the test before it."""
    interval = algorithm.config.evaluation_interval
    if interval and result["training_iteration"] % interval:
        result.pop(EVALUATION_RESULTS, None)


def check(config: AlgorithmConfig) -> None:
    """Refuse settings of the evaluation that are not honoured.

    Raises:
        ValueError: naming the setting, its value and the remedy.
    """
    if not config.evaluation_interval:
        return
    for name, honoured in _HONOURED.items():
        value = getattr(config, name)
        if value not in honoured:
            raise ValueError(
                f"{name} is {value!r}, but it can be {honoured[0]!r} only; leave it out"
            )
    for key in config.evaluation_config:
        if key not in _DEFAULTS:
            raise ValueError(
                f"evaluation_config has no key {key!r} here; its keys are {', '.join(_DEFAULTS)}"
            )
    tested_on(config)


def tested_on(config: AlgorithmConfig) -> dict[str, Any]:
    """The complete ``env_config`` of the test."""
    return complete(config.env_config | config.evaluation_config["env_config"])


def on_test_levels(algorithm: Algorithm, runners: Any) -> tuple[dict[str, Any], int, int]:
    """What RLlib calls: results of the test, and how many turns were played (twice)."""
    config = algorithm.config
    count = config.evaluation_duration
    games = VectorProcgen(min(_NUM_TEST_ENVS, count), tested_on(config))
    module = runners.local_env_runner.module
    if isinstance(module, MultiRLModule):
        module = module[DEFAULT_MODULE_ID]
    act = acting(module, greedy=not config.evaluation_config["explore"])
    # Other levels each time, and the same ones when this is repeated.
    seed = (config.seed or 0) * 100_003 + algorithm.iteration
    episodes = play(games, act, episodes=count, seed=seed, show=False)
    games.close()
    result = score(episodes, games.env_config)
    turns = sum(len(one.actions) for one in episodes)
    result |= {"episode_return_mean": result["reward"], "episode_len_mean": result["length"]}
    logger = MetricsLogger()
    logger.log_dict(result, reduce="mean")
    algorithm.metrics.aggregate(
        [logger.reduce(compile=False)], key=(EVALUATION_RESULTS, ENV_RUNNER_RESULTS)
    )
    return result, turns, turns
