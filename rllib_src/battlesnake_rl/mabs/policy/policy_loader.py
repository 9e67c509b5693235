"""Trained policies as functions from observations to action scores.

The policies come from exported files or checkpoints.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import policy_file
from sagemaker_rl.job.process_environment import limit_torch_threads
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.checkpoints import CheckpointError

if TYPE_CHECKING:
    from torch import nn

ScoreFn = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Policy as a function: uint8 (B, C, H, W) to float32 (B, 4).

The function maps observations to action scores. Higher scores are better.
"""

Weights = dict[str, NDArray[Any]]
"""Arrays of a network by name."""

BEST_FILE = "best.npz"
"""File of a checkpoint with the run's strongest weights (see `ladder_evaluator`)."""


def load_score_fn(path: Path) -> tuple[ScoreFn, dict[str, Any]]:
    """Load the policy in ``path`` (see `find`).

    Returns:
        The policy's function, and its ``env_config``.

    Raises:
        ValueError: If ``path`` contains no policy, the policy is damaged, or its metadata is
            missing.
    """
    path = find(path)
    if path.suffix == ".onnx":
        model, metadata = policy_file.read(path)
        env_config = metadata.get("training", {}).get("env_config")
        if env_config is None:
            raise ValueError(
                f"{path.stem}.json has no training.env_config; export the policy again"
            )
        session = policy_file.open_session(model, path)
        return (
            lambda frames: policy_file.run_session(session, None, {"observations": frames})[0]
        ), env_config

    return as_score_fn(load_network(path)), checkpoints.read_metadata(path)["env_config"]


def find(path: Path) -> Path:
    """Return the ``.onnx`` file or checkpoint at ``path`` or in ``path``.

    ``path`` may be a ``.onnx`` file, a checkpoint, a run, unpacked model artifacts of a job, or a
    directory that contains a policy.

    Raises:
        CheckpointError: If ``path`` contains no policy, or several policies.
    """
    if path.suffix == ".onnx":
        return path
    for folder in (path / "checkpoint", path):
        with contextlib.suppress(CheckpointError):
            return checkpoints.find(folder)
    inside = [*path.glob("*.onnx"), *(one for one in path.glob("*") if one.is_dir())]
    if len(inside) == 1:
        return find(inside[0])
    return checkpoints.find(path)  # The error names the missing files.


def as_score_fn(network: nn.Module) -> ScoreFn:
    """Return a torch network as a function on numpy arrays."""
    import torch

    def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.inference_mode():
            answer: NDArray[np.float32] = network(torch.from_numpy(frames)).numpy()
        return answer

    return values


def load_network(checkpoint: Path, last: bool = False) -> nn.Module:
    """Load a checkpoint's network: uint8 (B, C, H, W) to scores, float32 (B, 4).

    Higher scores are better. The network is built from the checkpoint's metadata. Of the
    checkpoint's pickles, only the weights are read.

    Args:
        checkpoint: Directory of the checkpoint.
        last: Whether to load the latest weights instead of the weights with the highest Elo.
            Without ladder evaluation, the latest weights are always loaded.

    Raises:
        CheckpointError: If the weights are missing or contain objects other than numbers.
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
            f"the weights in {checkpoint} do not fit its "
            f"{checkpoints.CHECKPOINT_METADATA_FILE}: {error}"
        ) from error


def inference_weights(module: Mapping[str, Any]) -> Weights:
    """Return copies of the inference network's arrays, given a module's arrays.

    For this project's modules, the result is the weight average, if the module has a weight
    average. For a module without a part named ``network``, the result contains all arrays.
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
    """Return the arrays of an actor-critic's value head, or {} for other modules."""
    weights = _read_weights(checkpoint)
    return {name: np.array(one) for name, one in weights.items() if name.startswith("value.")}


def build_network(
    weights: Weights, shape: Sequence[int], actions: int, trunk: Mapping[str, Any]
) -> nn.Module:
    """Build the network and load ``weights``.

    Raises:
        RuntimeError: If the weights do not fit the network (torch's error).
    """
    import torch

    from battlesnake_rl.mabs.policy.actor_critic import PolicyNetwork
    from battlesnake_rl.mabs.policy.q_network import DuelingQNetwork, build

    kind = DuelingQNetwork if "advantage.weight" in weights else PolicyNetwork
    network = build(kind, shape, actions, trunk)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return network.eval()


def read_best(checkpoint: Path) -> Weights | None:
    """Return the strongest weights of a run, or None without ladder evaluation."""
    path = checkpoint / BEST_FILE
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def policy_identity(checkpoint: Path) -> dict[str, Any]:
    """Return the identity of a checkpoint, which determines the weights that fit.

    Raises:
        CheckpointError: If the checkpoint contains no policy.
    """
    identity: dict[str, Any] = checkpoints.read_metadata(checkpoint)["identity"]
    if "observation_shape" not in identity:
        raise CheckpointError(
            f"{checkpoint} contains no policy: {identity['algorithm']} trains an evaluation for "
            "the search, which is the run's model/champion.evaluation"
        )
    return identity


def _read_weights(checkpoint: Path) -> dict[str, Any]:
    """Return the arrays of the trained module, or of the first module by name."""
    from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE

    modules = checkpoint / COMPONENT_LEARNER_GROUP / COMPONENT_LEARNER / COMPONENT_RL_MODULE
    folders = sorted(path for path in modules.glob("*") if path.is_dir())
    if not folders:
        raise CheckpointError(
            f"{checkpoint} has no torch network; export the checkpoint and use the policy.onnx"
        )
    weights = checkpoints.load_numeric_pickle(folders[0] / "module_state.pkl")
    if not isinstance(weights, dict):
        raise CheckpointError(f"{folders[0]} contains no weights by name")
    return weights
