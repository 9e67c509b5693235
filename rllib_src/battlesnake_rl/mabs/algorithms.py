"""Configurations of the training algorithms, with defaults for Battlesnake."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray import cloudpickle
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from battlesnake_gym.common import extensions
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.rules import MOVES
from battlesnake_rl.mabs.base.batched_algorithm import BatchedAlgorithmConfig
from battlesnake_rl.mabs.base.ladder_evaluation import LadderEvaluationMixin
from battlesnake_rl.mabs.dqn.dqn import DQN
from battlesnake_rl.mabs.envs.board_size_schedule import advance_board_size
from battlesnake_rl.mabs.envs.env_factory import make_vector_env, sample_opponents
from battlesnake_rl.mabs.envs.training_env_config import ENV_NAME, env_options
from battlesnake_rl.mabs.policy import warm_start
from battlesnake_rl.mabs.policy.actor_critic import policy_network_class
from battlesnake_rl.mabs.policy.q_network import (
    DuelingQNetwork,
    make_network,
    network_settings,
)
from battlesnake_rl.mabs.settings.algorithm_settings import settings_class
from battlesnake_rl.mabs.settings.base_settings import POLICY_PER_SEAT, SHARED_POLICY
from sagemaker_rl.job.hyperparameters import HyperparameterError


def configure(
    name: str, env_config: Mapping[str, Any], policy_sharing: str = SHARED_POLICY
) -> AlgorithmConfig:
    """Return the training configuration of an algorithm.

    Args:
        name: Name of an algorithm, or ``FILE.py:NAME``.
        env_config: Options of the games (`training_env_config.ENV_CONFIG_DEFAULTS`).
        policy_sharing: `SHARED_POLICY`, or `POLICY_PER_SEAT` (RLLIB_PPO only). With one policy
            per seat, only the first seat's policy is evaluated and exported.

    Raises:
        ValueError: If the algorithm is unknown or does not support the options.
    """
    config = base_config(name)
    env_config = {**config.settings_class.env_defaults, **env_config}
    config.settings_class.check_games(None, name, env_config, policy_sharing)
    games = env_options(env_config)
    config.environment(ENV_NAME, env_config=dict(vars(games)))
    config.learners(num_gpus_per_learner=int(torch.cuda.is_available()))
    if env_config.get("iterate_map_size"):
        config.callbacks(
            on_train_result=advance_board_size,
            on_checkpoint_loaded=advance_board_size,
            on_env_runners_recreated=advance_board_size,
        )
    if policy_sharing == POLICY_PER_SEAT:
        config.use_policy_per_seat(int(np.max(games.num_snakes)))
    if "head_crop" in config.model_config:
        config.rl_module(model_config=config.model_config | {"head_plane": games.head_plane})
    return config


def base_config(name: str) -> Any:
    """Return the default configuration of a built-in algorithm or of ``FILE.py:NAME``."""
    if ".py:" not in name:
        module, _, config_class = settings_class(name).config_class.partition(":")
        try:
            return getattr(importlib.import_module(module), config_class)()
        except ImportError as error:
            raise ValueError(
                f"{name} needs the C search, which is not compiled ({error}); install with a C "
                "compiler, or choose another algorithm"
            ) from error
    custom: Any = extensions.load_object(name, "algorithm")
    if hasattr(custom, "get_default_config"):
        config = custom.get_default_config()
        config.algo_class = custom
    else:
        config = custom() if callable(custom) and not isinstance(custom, type) else custom
    if not isinstance(config, AlgorithmConfig) or not issubclass(
        config.algo_class, LadderEvaluationMixin
    ):
        raise ValueError(
            f"algorithm {name} must be a subclass of PPO (battlesnake_rl.mabs.ppo.ppo), DQN "
            "(.dqn.dqn), APEX (.dqn.apex) or RLlibPPO (.ppo.rllib_ppo), or a function that "
            "returns the configuration of such a subclass"
        )
    # Other training processes cannot import the user's file. Cloudpickle must therefore serialize
    # the classes in the file by value.
    cloudpickle.register_pickle_by_value(sys.modules[custom.__module__])
    return config


def use_custom_network(config: AlgorithmConfig, reference: str) -> None:
    """Set a custom network for PPO, DISTIL, DQN or APEX.

    Args:
        config: Configuration to change.
        reference: Class of the network, ``FILE.py:CLASS``.

    Raises:
        ValueError: If the algorithm does not support custom networks or the class does not exist.
    """
    if not isinstance(config, BatchedAlgorithmConfig) or "gru_size" in config.model_config:
        raise ValueError(
            f"network needs PPO, DISTIL, DQN or APEX, got {config.algo_class.__name__}, whose "
            "module also needs a value head; set rl_module_spec in Python instead"
        )
    extensions.load_object(reference, "network")
    file, _, name = reference.rpartition(":")
    # The path must be absolute, because Ray's processes have different working directories.
    path = f"{Path(file).resolve()}:{name}"
    settings: Any = config
    settings.rl_module(model_config=settings.model_config | {"network": path})


def checkpoint_identity(config: Any) -> dict[str, Any]:
    """Return the settings that a checkpoint and the resuming run must share.

    The settings are the board size, the observation, the actions and the network. The function also
    checks that the opponents' frozen policies fit the games.

    Raises:
        ValueError: If a frozen policy does not fit the games, or if a setting is invalid.
    """
    environment = make_vector_env(1, config.env_config)
    if config.settings_class.uses_torch:
        _check_network(config, environment)
    # Training must not start with frozen policies that do not fit these games.
    none = PastSelves(lambda weights: weights)
    sample_opponents(environment, config.env_config["opponents"], np.random.default_rng(), none)
    return {
        "board_size": [config.env_config["width"], config.env_config["height"]],
        "observation": environment.observation.to_dict(),
        "observation_shape": list(environment.single_observation_space.shape),
        "actions": list(MOVES),
        "network": network_settings(config.model_config),
        **({"policy_sharing": "per_seat"} if len(config.policies) > 1 else {}),
        **{name: getattr(config, name) for name in ("full_board_critic",) if hasattr(config, name)},
    }


def _check_network(config: Any, environment: VectorBattlesnake) -> None:
    """Check the settings of the network, and the initial policy.

    Raises:
        ValueError: If a setting is invalid, or if the initial policy does not fit.
    """
    plane = env_options(config.env_config).head_plane
    if config.model_config.get("head_plane", plane) not in (None, plane):
        raise HyperparameterError(
            "rl.training.config.env_config.observation does not fit the network; set the "
            "hyperparameter observation instead"
        )
    settings = network_settings(config.model_config)
    kind = DuelingQNetwork if issubclass(config.algo_class, DQN) else policy_network_class(settings)
    shape = environment.single_observation_space.shape
    try:
        network = make_network(kind, shape, len(MOVES), settings).eval()
        with torch.no_grad():
            answer = network(torch.zeros((2, *shape), dtype=torch.uint8))
    except Exception as error:
        raise ValueError(
            f"model_config defines no valid network for observations of shape {shape}: {error}"
        ) from error
    if isinstance(answer, tuple):  # The network is recurrent and also returns states.
        answer = answer[0]
    if getattr(answer, "shape", None) != (2, 4) or answer.dtype == torch.bfloat16:
        got = f"{getattr(answer, 'dtype', '')} {getattr(answer, 'shape', type(answer).__name__)}"
        raise ValueError(
            f"the network of {settings} must return float32 [batch, 4], got {got} for a batch of 2"
        )
    if config.start_from is not None:
        warm_start.check_start_from(network, environment, Path(config.start_from))
