"""Episodes played by a policy network, and their statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EVALUATION_RESULTS
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from tqdm import tqdm

from battlesnake_rl.procgen.procgen_env_config import check_keys, with_defaults
from battlesnake_rl.procgen.procgen_environment import FRAME_SHAPE, VectorProcgen
from battlesnake_rl.procgen.procgen_games import normalized_score

PolicyFn = Callable[[NDArray[np.uint8]], NDArray[np.int64]]
"""Policy as a function: uint8 (N, 64, 64, C) to int64 (N,).

The function maps observations to actions.
"""


@dataclass
class Episode:
    """One episode of one game, still running or already finished."""

    level_seed: int
    observations: list[NDArray[np.uint8]] = field(default_factory=list)
    """Frames, uint8 (64, 64, 3), one more than actions; empty unless ``keep_frames``."""
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    """Whether the level was completed or lost; False for a truncated episode."""


def play_episodes(
    games: VectorProcgen,
    act: PolicyFn,
    *,
    num_episodes: int = 0,
    num_env_steps: int = 0,
    seed: int | None = None,
    keep_frames: bool = False,
    show_progress: bool = True,
) -> list[Episode]:
    """Play ``num_episodes`` complete episodes, or ``num_env_steps`` env steps.

    The function assigns the episodes evenly to the games in advance. A count of the episodes that
    end first would favor short episodes.

    Args:
        games: The games.
        act: Function from observations to actions.
        num_episodes: Number of complete episodes; 0 to play ``num_env_steps`` instead.
        num_env_steps: Number of env steps, summed over all games.
        seed: Random seed of the games.
        keep_frames: Whether the results contain the frames.
        show_progress: Whether to show a progress bar on a terminal.

    Returns:
        The finished episodes.
    """
    observations, infos = games.reset(seed=seed)
    quota = [
        num_episodes // games.num_envs + (i < num_episodes % games.num_envs)
        for i in range(games.num_envs)
    ]
    finished: list[Episode] = []
    current = [Episode(int(level)) for level in infos["level_seed"]]
    started = np.ones(games.num_envs, dtype=np.bool_)
    done, wanted = 0, num_episodes or num_env_steps
    unit = "episodes" if num_episodes else "steps"
    with tqdm(total=wanted, unit=unit, disable=None if show_progress else True) as bar:
        while done < wanted:
            actions = act(observations)
            frames = observations
            observations, rewards, terminations, truncations, infos = games.step(actions)
            ended = terminations | truncations
            for i, episode in enumerate(current):
                if not started[i]:
                    # This step has ignored the action and returned the first frame of the next
                    # level.
                    current[i] = Episode(int(infos["level_seed"][i]))
                    continue
                if keep_frames:
                    episode.observations.append(_newest_frame(frames[i]))
                episode.actions.append(int(actions[i]))
                episode.rewards.append(float(rewards[i]))
                if ended[i]:
                    episode.terminated = bool(terminations[i])
                    if keep_frames:
                        episode.observations.append(_newest_frame(observations[i]))
                    if not num_episodes or quota[i] > 0:
                        finished.append(episode)
                        quota[i] -= 1
            done = len(finished) if num_episodes else done + int(started.sum())
            bar.update(done - bar.n)
            started = ~ended
    return finished


def _newest_frame(observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of the newest frame of an observation, uint8 (64, 64, 3)."""
    return observation[..., -FRAME_SHAPE[-1] :].copy()


def make_policy(module: RLModule, *, greedy: bool = False) -> PolicyFn:
    """Return a network's policy as a function from observations to actions.

    The function samples actions, unless ``greedy`` is True.
    """
    device = torch.device("cpu")
    if isinstance(module, torch.nn.Module):
        device = next(module.eval().parameters(), torch.zeros(0)).device

    def act(observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the actions for a batch of observations, int64 (N,)."""
        with torch.no_grad():
            frames = torch.from_numpy(observations).to(device)
            outputs = module.forward_inference({Columns.OBS: frames})
        actions = outputs.get(Columns.ACTIONS)
        if actions is None:
            choice = module.get_inference_action_dist_cls().from_logits(
                outputs[Columns.ACTION_DIST_INPUTS]
            )
            actions = (choice.to_deterministic() if greedy else choice).sample()
        return np.asarray(torch.as_tensor(actions).cpu(), dtype=np.int64)

    return act


def compute_statistics(
    episodes: Sequence[Episode], env_config: Mapping[str, Any]
) -> dict[str, float]:
    """Return statistics of ``episodes``, keyed by name.

    The statistics are the number of episodes, the mean reward and its standard error, the mean
    length in env steps, and the normalized score. The standard error exists only for two or more
    episodes, and the normalized score only in the modes easy and hard.
    """
    totals = [sum(one.rewards) for one in episodes]
    result = {
        "episodes": float(len(episodes)),
        "reward": float(np.mean(totals)),
        "length": float(np.mean([len(one.actions) for one in episodes])),
    }
    if len(totals) > 1:
        result["standard_error"] = float(np.std(totals, ddof=1) / np.sqrt(len(totals)))
    if env_config["distribution_mode"] in ("easy", "hard"):
        result["normalized_score"] = normalized_score(
            result["reward"], env_config["env_name"], env_config["distribution_mode"]
        )
    return result


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
