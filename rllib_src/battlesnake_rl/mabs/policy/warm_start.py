"""Training that starts from the weights of another policy.

The functions load only weights. The optimizer, the replay buffer, the counters and the exploration
start from scratch. Board, rewards, opponents and settings may therefore differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from torch import nn

from battlesnake_gym import policy_file
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_rl.mabs.policy.policy_loader import PolicyCheckpoint, Weights, find_policy
from sagemaker_rl.runs.divergence import Learners

_Q_TO_LOGIT_SCALE = 20.0
"""Factor from Q-values to logits when a Q-network initializes a policy head."""


def apply_start_from(config: AlgorithmConfig, path: str | None) -> None:
    """Set the policy in ``path`` as the source of the initial weights.

    The function accepts the paths that `policy_loader.find_policy` accepts, and None in a preflight
    check, in which the policy does not exist yet. If the policy is a checkpoint, the function also
    copies the network's settings into ``config``, unless ``config`` has a custom network.

    Raises:
        ValueError: If ``path`` contains no policy, or if the algorithm does not support
            ``start_from``.
    """
    if not hasattr(config, "start_from"):
        raise ValueError(
            "start_from needs PPO, RECURRENT_PPO, DISTIL, DQN, APEX or RLLIB_PPO, got "
            f"{config.algo_class.__name__}; leave out start_from and the data channel policy"
        )
    if path is None:
        if "kickstart_coeff" in vars(config):
            config.kickstart_coeff = 0.0
        return
    found = find_policy(path).absolute()
    config.start_from = str(found)
    if found.suffix != ".onnx":
        settings = PolicyCheckpoint(found).identity["network"]
        if "gru_size" in settings and "gru_size" not in config.model_config:
            raise ValueError(
                f"start_from: {path} has a recurrent network; only RECURRENT_PPO can start from it"
            )
        if "network" not in config.model_config:
            config.rl_module(model_config={**config.model_config, **settings})


def check_start_from(network: nn.Module, environment: VectorBattlesnake, path: Path) -> None:
    """Check that a policy fits the network and the games of the training.

    Raises:
        ValueError: If the policy does not fit; the message names the difference.
    """
    is_onnx = path.suffix == ".onnx"
    policy = policy_file.read(path)[1] if is_onnx else PolicyCheckpoint(path).identity
    seen, shown = policy["observation"], environment.observation.to_dict()
    if seen != shown:
        key = next(key for key in seen | shown if seen.get(key) != shown.get(key))
        name = "observation" if key == "name" else key
        raise ValueError(
            f"start_from: {path} has {name} {seen.get(key)!r}, but the games have "
            f"{shown.get(key)!r}; set {name} to the value of the policy"
        )
    _load_into_network(network, _load_policy_weights(path), path)


def _load_policy_weights(path: Path) -> Weights:
    """Load the arrays of the policy in ``path``, keyed by name.

    See `policy_loader.find_policy`. For a checkpoint, the arrays are the exported weights and the
    latest value head, if a value head exists.
    """
    if path.suffix != ".onnx":
        checkpoint = PolicyCheckpoint(path)
        network = checkpoint.load_network().state_dict()
        return checkpoint.load_value_head() | {name: one.numpy() for name, one in network.items()}
    import onnx
    from onnx import numpy_helper

    model, _ = policy_file.read(path)
    constants = onnx.load_from_string(model).graph.initializer
    return {one.name: numpy_helper.to_array(one) for one in constants}


def _load_into_network(network: nn.Module, weights: Weights, path: Path) -> None:
    """Load the ``weights`` of the policy in ``path`` into ``network``.

    The function ignores arrays that the network does not have.

    Raises:
        ValueError: If an array is missing or has another shape.
    """
    wanted = network.state_dict()
    if "policy.weight" in wanted and "advantage.weight" in weights:
        heads = {f"policy.{end}": weights[f"advantage.{end}"] for end in ("weight", "bias")}
        weights = weights | {name: _Q_TO_LOGIT_SCALE * one for name, one in heads.items()}
    if missing := [name for name in wanted if name not in weights]:
        raise ValueError(
            f"start_from: {path} has no {missing[0]}; DQN, APEX, RECURRENT_PPO and custom networks "
            "need a policy of the same kind of network"
        )
    for name, one in wanted.items():
        if weights[name].shape != one.shape:
            raise ValueError(
                f"start_from: {path} was trained on another board or with another model_config: "
                f"{name} is {weights[name].shape}, and here {tuple(one.shape)}"
            )
    network.load_state_dict({name: torch.tensor(weights[name]) for name in wanted})


def load_into_learners(algorithm: Any, path: Path) -> None:
    """Load the policy in ``path`` into all learners of an algorithm.

    Raises:
        ValueError: If the weights do not fit a module.
    """
    weights = _load_policy_weights(path)

    def load(learner: Any) -> None:
        """Load the weights into one learner."""
        for module in learner.module.values():
            one = module.unwrapped()
            _load_into_network(getattr(one, "network", one), weights, path)
            head = getattr(one, "value", None)
            if isinstance(head, nn.Linear) and "value.bias" in weights:
                value = {end: torch.tensor(weights[f"value.{end}"]) for end in head.state_dict()}
                head.load_state_dict(value)
            if hasattr(one, "get_target_network_pairs"):
                for trained, target in one.get_target_network_pairs():
                    target.load_state_dict(trained.state_dict())

    Learners(algorithm).call(load)
