"""The algorithms that train a snake, by name, with the defaults that suit the game."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from mabs.apex import APEXConfig
from mabs.dqn import DQNConfig
from mabs.environment import DEFAULTS, ENV_NAME
from mabs.multi_agent_env import BattlesnakeMultiAgentEnv

ALGORITHMS: dict[str, Callable[[], AlgorithmConfig]] = {"DQN": DQNConfig, "APEX": APEXConfig}
"""Name: the configuration to start from."""


def configure(name: str, env_config: Mapping[str, Any]) -> AlgorithmConfig:
    """The configuration of an algorithm on games that ``env_config`` describes.

    Raises:
        ValueError: there is no such algorithm.
    """
    if name not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {name!r}; choose one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]().environment(ENV_NAME, env_config=DEFAULTS | dict(env_config))


def make_multi_agent_env(env_config: Mapping[str, Any]) -> BattlesnakeMultiAgentEnv:
    """What RLlib's own runners play on (ours build their batch from the same ``env_config``)."""
    return BattlesnakeMultiAgentEnv(env_config)
