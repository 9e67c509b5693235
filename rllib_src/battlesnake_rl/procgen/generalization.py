"""Test curve of a training: periodic evaluation on test levels.

``evaluation_interval`` is the number of iterations between tests. ``evaluation_duration`` is the
number of episodes per test. ``evaluation_config.env_config`` contains the differences from the
training options. By default, the test uses all levels. The test replaces RLlib's own evaluation,
which would count the episodes that end first and thereby favor short episodes.
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

from battlesnake_rl.procgen.procgen_env_config import check_keys, with_defaults
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_episodes import compute_statistics, make_policy, play_episodes

_EVALUATION_DEFAULTS: dict[str, Any] = {
    "env_config": {"num_levels": 0, "start_level": 0},
    "explore": True,
}
"""Default ``evaluation_config``: all levels, with sampled actions."""

GENERALIZATION_COLUMNS = {"test_reward_mean": f"{EVALUATION_RESULTS}/{ENV_RUNNER_RESULTS}/reward"}
"""Result keys of the test curve's columns in ``progress.csv``."""

_NUM_TEST_ENVS = 64
"""Maximum number of parallel games in a test."""

_SUPPORTED_VALUES: dict[str, tuple[Any, ...]] = {
    "evaluation_duration_unit": ("episodes",),
    "evaluation_num_env_runners": (0,),
    "evaluation_parallel_to_training": (False,),
}
"""Supported values of some RLlib evaluation settings, keyed by setting."""


def enable_test_curve(config: AlgorithmConfig) -> None:
    """Configure the test curve.

    RLlib runs tests only if ``evaluation_interval`` is set.
    """
    config.evaluation(
        custom_evaluation_function=_evaluate_on_test_levels,
        evaluation_config=copy.deepcopy(_EVALUATION_DEFAULTS),
    )
    config.callbacks(on_train_result=_drop_old_results)


def _drop_old_results(*, algorithm: Algorithm, result: dict[str, Any], **kwargs: Any) -> None:
    """Remove the results of an earlier test from ``result``.

    RLlib repeats these results in the iterations between tests.
    """
    interval = algorithm.config.evaluation_interval
    if interval and result["training_iteration"] % interval:
        result.pop(EVALUATION_RESULTS, None)


def check_evaluation_settings(config: AlgorithmConfig) -> None:
    """Reject unsupported settings of the evaluation.

    Raises:
        ValueError: If a setting is not supported; the message names the setting, its value and the
            remedy.
    """
    interval = config.evaluation_interval
    if not interval:
        return
    if type(interval) is not int or interval < 0:
        raise ValueError(
            f"evaluation_interval must be a whole number of iterations, got {interval!r}; try 10"
        )
    for name, supported in _SUPPORTED_VALUES.items():
        value = getattr(config, name)
        if value not in supported:
            raise ValueError(
                f"{name} is {value!r}, but only {supported[0]!r} is supported; leave it out"
            )
    check_keys("evaluation_config", config.evaluation_config, _EVALUATION_DEFAULTS)
    _test_env_config(config)


def _test_env_config(config: AlgorithmConfig) -> dict[str, Any]:
    """Return the complete ``env_config`` of the test levels."""
    return with_defaults(config.env_config | config.evaluation_config["env_config"])


def _evaluate_on_test_levels(algorithm: Algorithm, runners: Any) -> tuple[dict[str, Any], int, int]:
    """Run one test; RLlib calls this function instead of its own evaluation.

    Returns:
        The results, the number of env steps, and the number of agent steps. Both numbers are equal.
    """
    config = algorithm.config
    count = config.evaluation_duration
    games = VectorProcgen(min(_NUM_TEST_ENVS, count), _test_env_config(config))
    module = runners.local_env_runner.module
    if isinstance(module, MultiRLModule):
        module = module[DEFAULT_MODULE_ID]
    act = make_policy(module, greedy=not config.evaluation_config["explore"])
    # Different iterations use different levels. A repeated run uses the same levels.
    seed = (config.seed or 0) * 100_003 + algorithm.iteration
    episodes = play_episodes(games, act, num_episodes=count, seed=seed, show_progress=False)
    games.close()
    result = compute_statistics(episodes, games.env_config)
    turns = sum(len(one.actions) for one in episodes)
    result |= {"episode_return_mean": result["reward"], "episode_len_mean": result["length"]}
    logger = MetricsLogger()
    logger.log_dict(result, reduce="mean")
    algorithm.metrics.aggregate(
        [logger.reduce(compile=False)], key=(EVALUATION_RESULTS, ENV_RUNNER_RESULTS)
    )
    return result, turns, turns
