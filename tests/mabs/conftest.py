"""Small games to train on."""

from pathlib import Path
from typing import Any

import pytest

SMALL: dict[str, Any] = {
    "num_snakes": 2,
    "width": 5,
    "height": 5,
    "max_turns": 30,
    "rewards": "survival",
}
"""An ``env_config`` whose games are over in a moment."""

TINY: dict[str, Any] = {"channels": (8,), "strides": (2,), "hidden_size": 16}
"""The settings of a network that is trained in a moment."""


@pytest.fixture(scope="session")
def ray_with_games(ray_session: None) -> None:
    """Ray that can make the multi-agent environment by its name."""
    from ray.tune.registry import register_env

    from battlesnake_rl.mabs.envs.multi_agent_env import BattlesnakeMultiAgentEnv
    from battlesnake_rl.mabs.envs.training_env_config import ENV_NAME

    register_env(ENV_NAME, BattlesnakeMultiAgentEnv)


def small(name: str, **env_config: Any) -> Any:
    """The configuration of an algorithm that trains in seconds."""
    from battlesnake_rl.mabs import algorithms

    config = algorithms.configure(name, SMALL | env_config)
    config.env_runners(
        num_env_runners=0 if name == "DQN" else 1,
        num_envs_per_env_runner=4,
        rollout_fragment_length=8,
    )
    config.training(
        train_batch_size_per_learner=32,
        num_steps_sampled_before_learning_starts=64,
        target_network_update_freq=64,
        replay_buffer_config={"capacity": 2_000},
    )
    config.reporting(min_sample_timesteps_per_iteration=128, min_time_s_per_iteration=0)
    config.rl_module(model_config=TINY)
    config.fault_tolerance(restart_failed_env_runners=False)
    return config.debugging(seed=7, log_level="ERROR")


LIMITED = {"settings": {"view_radius": 2}, "width": 7, "height": 7, "num_snakes": 3}


def small_policy(name: str, **env_config: Any) -> Any:
    """The configuration of PPO, RECURRENT_PPO or DISTIL that trains in seconds."""
    from battlesnake_rl.mabs import algorithms

    games = SMALL | (LIMITED if name == "RECURRENT_PPO" else {})
    if name == "DISTIL":
        games = {key: value for key, value in SMALL.items() if key != "rewards"}
    config = algorithms.configure(name, games | env_config)
    config.env_runners(num_envs_per_env_runner=8, rollout_fragment_length=8)
    config.training(minibatch_size=32)
    if name == "RECURRENT_PPO":
        config.training(gru_size=8)
    if name == "DISTIL":
        config.training(expert_nodes=100, label_buffer_size=500)
    config.reporting(min_time_s_per_iteration=0)
    config.rl_module(model_config=config.model_config | TINY)
    config.fault_tolerance(restart_failed_env_runners=False)
    config.ladder_cpu_fraction = 0.0
    return config.debugging(seed=7, log_level="ERROR")


@pytest.fixture
def small_config(ray_with_games: None) -> Any:
    """The function `small`, once Ray can make the environment."""
    return small


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Where a test's runs go."""
    return tmp_path / "runs"
