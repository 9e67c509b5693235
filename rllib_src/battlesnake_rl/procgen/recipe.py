"""What an experiment makes, in one line that is told before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPOConfig

from battlesnake_rl.mabs.policy.q_network import bfloat16_pays
from battlesnake_rl.procgen import generalization
from battlesnake_rl.procgen.env_config import complete
from battlesnake_rl.procgen.impala_network import MODEL_CONFIG, ImpalaModule
from battlesnake_rl.procgen.procgen_ppo import ProcgenPPOConfig


def recipe(config: AlgorithmConfig) -> str:
    """The line for a final configuration: algorithm, game, games and turns, batches, precision."""
    return "; ".join(_parts(config))


def _parts(config: AlgorithmConfig) -> Iterator[str]:
    env_config = complete(config.env_config)
    yield (
        f"{config.algo_class.__name__} on {env_config['env_name']} "
        f"({env_config['distribution_mode']}, {_levels(env_config)})"
    )
    runners, envs = config.num_env_runners, config.num_envs_per_env_runner
    games = max(runners, 1) * envs
    batch = config.total_train_batch_size
    turns = f"{batch / games:.4g} turns = {batch:,} frames an iteration"
    yield f"{games} games ({_by(runners, envs)}) x {turns}"
    if isinstance(config, PPOConfig):
        learners = max(config.num_learners, 1)
        yield (
            f"{batch / learners / config.minibatch_size:.4g} minibatches of "
            f"{config.minibatch_size:,}{f' on each of {learners} learners' if learners > 1 else ''}"
            f", {config.num_epochs} epoch{'s' if config.num_epochs > 1 else ''}, "
            f"clip {config.clip_param:g}"
        )
    if isinstance(config, ProcgenPPOConfig):
        yield ", ".join(config.told())
    if issubclass(config.rl_module_spec.module_class or object, ImpalaModule):
        yield _precision(config.rl_module_spec.model_config or {}, config.num_gpus_per_learner > 0)
    if config.evaluation_interval:
        yield (
            f"tested on {_levels(generalization.tested_on(config))} every "
            f"{config.evaluation_interval} iterations"
        )


def _levels(env_config: Mapping[str, Any]) -> str:
    count = env_config["num_levels"]
    return f"{count} levels" if count else "all levels"


def _by(runners: int, envs: int) -> str:
    return f"{runners} runners of {envs}" if runners else "played by the driver"


def _precision(model_config: Mapping[str, Any], on_gpu: bool) -> str:
    choice = (MODEL_CONFIG | dict(model_config))["bfloat16"]
    device = torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu")
    half = bfloat16_pays(device) if choice == "auto" else bool(choice)
    return "bfloat16" if half else "float32"
