"""Configurations of the training algorithms, with defaults for Battlesnake."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray import cloudpickle
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.env.opponent_names import PAST_SELF
from battlesnake_rl.mabs.base.batched_algorithm import BatchedAlgorithmConfig
from battlesnake_rl.mabs.base.ladder_evaluation import LadderEvaluationMixin
from battlesnake_rl.mabs.distil.distil import DISTILConfig
from battlesnake_rl.mabs.dqn.apex import APEXConfig
from battlesnake_rl.mabs.dqn.dqn import DQNConfig
from battlesnake_rl.mabs.envs.board_size_schedule import advance_board_size
from battlesnake_rl.mabs.envs.env_factory import ENV_NAME, head_plane_index, with_defaults
from battlesnake_rl.mabs.envs.multi_agent_env import BattlesnakeMultiAgentEnv
from battlesnake_rl.mabs.mxnet_dqn.mxnet_dqn import MXNETConfig
from battlesnake_rl.mabs.policy.actor_critic import SnakeActorCritic
from battlesnake_rl.mabs.policy.q_network import TRUNK_DEFAULTS
from battlesnake_rl.mabs.ppo.ppo import PPOConfig
from battlesnake_rl.mabs.ppo.rllib_ppo import RLlibPPOConfig

SHARED_MODULE_ID = "snake"
"""RLlib module ID of the policy that all snakes share.

RLlib's default module ID would imply a single agent.
"""

_SHARED_POLICY, _POLICY_PER_SEAT = "shared", "per_seat"
"""Values of ``policy_sharing``: one policy for all snakes, or one per seat."""


def _with_shared_network(config: AlgorithmConfig) -> AlgorithmConfig:
    """Set `SnakeActorCritic` as the network of all snakes, for an RLlib algorithm."""
    return _set_policies(
        config.rl_module(model_config=dict(TRUNK_DEFAULTS)), [SHARED_MODULE_ID], _map_to_shared
    )


def _set_policies(
    config: AlgorithmConfig, names: Sequence[str], mapping: Callable[..., str]
) -> AlgorithmConfig:
    """Set the policies of a configuration.

    Args:
        config: Configuration to change.
        names: Names of the policies; each policy is a `SnakeActorCritic`.
        mapping: Function that returns the name of the policy for an agent.

    Returns:
        The argument ``config``.
    """
    specs = {name: RLModuleSpec(module_class=SnakeActorCritic) for name in names}
    return config.multi_agent(
        policies=set(names), policy_mapping_fn=mapping, count_steps_by="agent_steps"
    ).rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))


def _map_to_shared(agent: str, episode: Any, **_: Any) -> str:
    """Return the module ID of the shared policy, for any agent."""
    return SHARED_MODULE_ID


def _map_to_seat(agent: str, episode: Any, **_: Any) -> str:
    """Return the module ID of the policy for the seat of ``agent``."""
    return agent


def _rllib_ppo_config() -> AlgorithmConfig:
    """Return the default configuration of RLLIB_PPO, which is RLlib's own PPO."""
    return _with_shared_network(RLlibPPOConfig())


def _exit_config() -> AlgorithmConfig:
    """Return the default configuration of EXIT.

    The import is local, because only EXIT requires the compiled C search.
    """
    try:
        from battlesnake_rl.mabs.exit.exit import EXITConfig
    except ImportError as error:
        raise ValueError(
            f"EXIT needs the C search, which is not compiled ({error}); install with a C "
            "compiler, or choose another algorithm"
        ) from error
    return EXITConfig()


_ALGORITHMS: dict[str, Callable[[], AlgorithmConfig]] = {
    "DQN": DQNConfig,
    "APEX": APEXConfig,
    "PPO": PPOConfig,
    "DISTIL": DISTILConfig,
    "RLLIB_PPO": _rllib_ppo_config,
    "EXIT": _exit_config,
    "MXNET": MXNETConfig,
}
"""Function that returns the base configuration, by algorithm name."""


def configure(
    name: str, env_config: Mapping[str, Any], policy_sharing: str = _SHARED_POLICY
) -> AlgorithmConfig:
    """Return the training configuration of an algorithm.

    Args:
        name: Name of an algorithm, or ``FILE.py:NAME``.
        env_config: Options of the games (`env_factory.ENV_CONFIG_DEFAULTS`).
        policy_sharing: `_SHARED_POLICY`, or `_POLICY_PER_SEAT` (RLLIB_PPO only). With one policy
            per seat, only the first seat's policy is evaluated and exported.

    Raises:
        ValueError: If the algorithm is unknown or does not support the options.
    """
    base_config = _base_config(name)
    env_config = {**base_config.settings_class.env_defaults, **env_config}
    for key in ("curriculum", "opponents"):
        if env_config.get(key) and not isinstance(base_config, BatchedAlgorithmConfig):
            raise ValueError(f"{key} needs PPO, DISTIL, DQN or APEX, got {name}; leave it out")
    counts = env_config.get("num_snakes")
    if isinstance(counts, list) and not (
        counts and isinstance(base_config, BatchedAlgorithmConfig)
    ):
        raise ValueError(
            "num_snakes must be a number, or with PPO, DISTIL, DQN or APEX a list of numbers, "
            f"got {counts} with {name}"
        )
    config = base_config.environment(ENV_NAME, env_config=with_defaults(env_config)).learners(
        num_gpus_per_learner=int(torch.cuda.is_available())
    )
    if env_config.get("iterate_map_size"):
        config.callbacks(
            on_train_result=advance_board_size,
            on_checkpoint_loaded=advance_board_size,
            on_env_runners_recreated=advance_board_size,
        )
    if policy_sharing == _POLICY_PER_SEAT:
        if name != "RLLIB_PPO":
            raise ValueError(f"policy_sharing per_seat needs RLLIB_PPO, got {name}")
        seats = range(int(np.max(config.env_config["num_snakes"])))
        config = _set_policies(config, [f"snake_{seat}" for seat in seats], _map_to_seat)
    elif policy_sharing != _SHARED_POLICY:
        raise ValueError(
            f"policy_sharing must be {_SHARED_POLICY!r} or {_POLICY_PER_SEAT!r}, "
            f"got {policy_sharing!r}"
        )
    if "head_crop" in config.model_config:
        where = {"head_plane": head_plane_index(config.env_config)}
        config.rl_module(model_config=config.model_config | where)
    return config


def num_saturating_env_runners(config: AlgorithmConfig) -> float:
    """Return the number of env runners that saturate the learners on CPUs.

    The report docs/research/scaling.md lists the measurements. The function returns
    infinity for unmeasured settings. Opponents other than past selves were not measured. Algorithms
    whose env runners wait for the learner were not measured either.
    """
    if config.env_config.get("opponents", {}).keys() - {PAST_SELF}:
        return math.inf
    settings: Any = config
    return float(settings.settings.saturating_env_runners() * max(settings.num_learners, 1))


def _base_config(name: str) -> AlgorithmConfig:
    """Return the base configuration of a built-in algorithm or of ``FILE.py:NAME``."""
    if name in _ALGORITHMS:
        return _ALGORITHMS[name]()
    if name == "IMPALA":
        raise ValueError(
            "algorithm IMPALA does not exist; use PPO with rl.training.config.async_sampling true, "
            "which trains with V-trace while its env runners play"
        )
    if ".py:" not in name:
        raise ValueError(
            f"{unknown_name_message('algorithm', name, _ALGORITHMS)}; or use FILE.py:NAME"
        )
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
    if not isinstance(config, BatchedAlgorithmConfig):
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


def make_multi_agent_env(env_config: Mapping[str, Any]) -> BattlesnakeMultiAgentEnv:
    """Create the multi-agent environment for RLlib's own env runners."""
    return BattlesnakeMultiAgentEnv(env_config)
