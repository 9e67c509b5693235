"""A trained policy, exported or in a checkpoint, as a function from observations to values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import policy_file
from sagemaker_rl.process_environment import limit_torch_threads
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.checkpoints import CheckpointError

if TYPE_CHECKING:
    from torch import nn

ScoreFn = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""A policy: (B, C, H, W) uint8 observations to (B, 4) float32 values, higher is better."""

Weights = dict[str, NDArray[Any]]
"""A network's arrays by name."""

BEST_FILE = "best.npz"
"""In a checkpoint: the strongest weights of the run (`battlesnake_rl.mabs.strength.ladder_evaluator`)."""


def load_score_fn(path: Path) -> tuple[ScoreFn, dict[str, Any]]:
    """The policy in ``path`` (`find`) and its ``env_config``.

    Raises:
        ValueError: there is none, or it is damaged, or its metadata is missing.
    """
    path = find(path)
    if path.suffix == ".onnx":
        model, metadata = policy_file.read(path)
        env_config = metadata.get("training", {}).get("env_config")
        if env_config is None:
            raise ValueError(f"{path.stem}.json has no training.env_config; export it again")
        session = policy_file.open_session(model, path)
        return lambda frames: session.run(None, {"observations": frames})[0], env_config

    return as_score_fn(load_network(path)), checkpoints.read_metadata(path)["env_config"]


def find(path: Path) -> Path:
    """The ``.onnx`` file or the checkpoint that ``path`` is or holds.

    That is a checkpoint, a run, what a job delivered (``model.tar.gz``, unpacked), or a folder with
    a single one of these in it.

    Raises:
        CheckpointError: there is none, or more than one.
    """
    if path.suffix == ".onnx":
        return path
    for folder in (path / "checkpoint", path):
        with contextlib.suppress(CheckpointError):
            return checkpoints.find(folder)
    inside = [*path.glob("*.onnx"), *(one for one in path.glob("*") if one.is_dir())]
    if len(inside) == 1:
        return find(inside[0])
    return checkpoints.find(path)  # which says what is missing


def as_score_fn(network: nn.Module) -> ScoreFn:
    """What a network of torch thinks."""
    import torch

    def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.inference_mode():
            answer: NDArray[np.float32] = network(torch.from_numpy(frames)).numpy()
        return answer

    return values


def load_network(checkpoint: Path, last: bool = False) -> nn.Module:
    """A checkpoint's network: (B, C, H, W) uint8 to (B, 4) float32, higher is better.

    It is the strongest that the run has had by the games beside training
    (`battlesnake_rl.mabs.strength.ladder_evaluator`) or, where there were none or with ``last``, that of the
    last update. The network is built here, from the checkpoint's facts; of its files only the
    weights are read.

    Raises:
        CheckpointError: there are no such weights, or more than weights.
    """
    limit_torch_threads()
    identity = policy_identity(checkpoint)
    try:
        weights = None if last else read_best(checkpoint)
        if weights is None:
            weights = inference_weights(_read_weights(checkpoint))
        return build_network(
            weights, identity["observation_shape"], len(identity["actions"]), identity["network"]
        )
    except CheckpointError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the weights in {checkpoint} do not fit its {checkpoints.CHECKPOINT_METADATA_FILE}: {error}"
        ) from error


def inference_weights(module: Mapping[str, Any]) -> Weights:
    """Of all arrays of an RLlib module those of the network that is played with, copied.

    DQN's and APEX's is the mean of what it was in training (`SnakeQModule`). Of a module that has
    no part called ``network`` it is all.
    """
    mean = int(module.get("mean.n_averaged", 0)) > 0
    prefix = "mean.module." if mean else "network."
    if not any(name.startswith(prefix) for name in module):
        prefix = ""
    return {
        name.removeprefix(prefix): np.array(array)
        for name, array in module.items()
        if name.startswith(prefix)
    }


def value_head(checkpoint: Path) -> Weights:
    """The arrays of the value head that an actor-critic has beside the network; of others none."""
    weights = _read_weights(checkpoint)
    return {name: np.array(one) for name, one in weights.items() if name.startswith("value.")}


def build_network(
    weights: Weights, shape: Sequence[int], actions: int, trunk: Mapping[str, Any]
) -> nn.Module:
    """The network with these weights; raises what torch does where they do not fit."""
    import torch

    from battlesnake_rl.mabs.policy.actor_critic import PolicyNetwork
    from battlesnake_rl.mabs.policy.q_network import DuelingQNetwork, build

    kind = DuelingQNetwork if "advantage.weight" in weights else PolicyNetwork
    network = build(kind, shape, actions, trunk)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return network.eval()


def read_best(checkpoint: Path) -> Weights | None:
    """The strongest weights of a run, None where none were measured; it reads arrays alone."""
    path = checkpoint / BEST_FILE
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def policy_identity(checkpoint: Path) -> dict[str, Any]:
    """What decides whether a checkpoint's weights fit.

    Raises:
        CheckpointError: no policy was trained there.
    """
    identity: dict[str, Any] = checkpoints.read_metadata(checkpoint)["identity"]
    if "observation_shape" not in identity:
        raise CheckpointError(
            f"{checkpoint} holds no policy: {identity['algorithm']} trains an evaluation for the "
            "search, which is the run's model/champion.evaluation"
        )
    return identity


def _read_weights(checkpoint: Path) -> dict[str, Any]:
    """The arrays of the module that was trained, the first of several, by name."""
    from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE

    modules = checkpoint / COMPONENT_LEARNER_GROUP / COMPONENT_LEARNER / COMPONENT_RL_MODULE
    folders = sorted(path for path in modules.glob("*") if path.is_dir())
    if not folders:
        raise CheckpointError(
            f"{checkpoint} has no torch network; export it and use the policy.onnx that comes of it"
        )
    weights = checkpoints.load_numeric_pickle(folders[0] / "module_state.pkl")
    if not isinstance(weights, dict):
        raise CheckpointError(f"{folders[0]} holds no weights by name")
    return weights
