"""Loading of trained policies as functions from observations to action scores.

The policies are exported files or checkpoints.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import policy_file
from battlesnake_gym.env.seat_memory import (
    ActFn,
    RecurrentPolicy,
    ScoreFn,
    States,
    onnx_score_fn,
    score_fn,
)
from sagemaker_rl.job.process_environment import limit_torch_threads
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.checkpoints import CheckpointError

if TYPE_CHECKING:
    from torch import nn

Weights = dict[str, NDArray[Any]]
"""Arrays of a network, keyed by name."""

BEST_WEIGHTS_FILE = "best.npz"
"""File of a checkpoint that contains the run's strongest weights.

See `ladder_evaluator`.
"""

BEST_ONNX_FILE, LATEST_ONNX_FILE = "best.onnx", "latest.onnx"
"""Files of a checkpoint whose network is not a torch network.

The files contain the network with the strongest and with the latest weights.
"""


def load_score_fn(path: Path | str) -> tuple[ScoreFn, dict[str, Any]]:
    """Load the policy in ``path`` (see `find_policy`).

    Returns:
        The score function of the policy, and the policy's ``env_config``.

    Raises:
        ValueError: If ``path`` contains no policy, the policy is damaged, or its metadata is
            missing.
    """
    path = find_policy(path)
    if path.suffix == ".onnx":
        model, metadata = policy_file.read(path)
        env_config = metadata.get("training", {}).get("env_config")
        if env_config is None:
            raise ValueError(
                f"{path.stem}.json has no training.env_config; export the policy again"
            )
        return onnx_score_fn(model, path), env_config
    checkpoint = PolicyCheckpoint(path)
    env_config = checkpoint.metadata["env_config"]
    if (onnx := checkpoint.onnx_file) is not None:
        return onnx_score_fn(onnx.read_bytes(), onnx), env_config
    return as_score_fn(checkpoint.load_network()), env_config


def find_policy(path: Path | str) -> Path:
    """Return the path of the ``.onnx`` file or checkpoint in ``path``.

    ``path`` may be a ``.onnx`` file, a checkpoint, a run, unpacked model artifacts of a job, or a
    directory that contains one such path.

    Raises:
        CheckpointError: If ``path`` contains no policy, or several policies.
    """
    given, path = path, Path(path)
    if path.suffix == ".onnx":
        return path
    if not path.exists():
        raise CheckpointError(f"{given} does not exist; give a run, a checkpoint or a .onnx file")
    for folder in (path / "checkpoint", path):
        with contextlib.suppress(CheckpointError):
            return checkpoints.find_checkpoint(folder)
    inside = [*path.glob("*.onnx"), *(one for one in path.glob("*") if one.is_dir())]
    if len(inside) == 1:
        return find_policy(inside[0])
    return checkpoints.find_checkpoint(path)  # The error message names the missing files.


def as_score_fn(network: nn.Module) -> ScoreFn:
    """Convert a torch network to a function on numpy arrays."""
    import torch

    def step(*inputs: NDArray[Any]) -> list[NDArray[np.float32]]:
        """Return the scores of observations, float32 (B, 4), and the next states."""
        with torch.inference_mode():
            answer = network(*map(torch.from_numpy, inputs))
        return [one.numpy() for one in (answer if isinstance(answer, tuple) else (answer,))]

    return score_fn(step, getattr(network, "state_size", 0))


def greedy_policy(values: ScoreFn) -> ActFn:
    """Return the policy that selects the unmasked move with the highest score."""

    def act(frames: NDArray[np.uint8], action_mask: NDArray[np.bool_], *states: States) -> Any:
        """Return the moves, integers (B,), and the next states of a recurrent policy."""
        answer = values(frames, *states)
        scores = answer[0] if states else answer
        moves = np.where(action_mask, scores, -np.inf).argmax(-1)
        return (moves, answer[1]) if states else moves

    return RecurrentPolicy(act, values.state_size) if isinstance(values, RecurrentPolicy) else act


def inference_weights(module: Mapping[str, Any]) -> Weights:
    """Return copies of the arrays of a module's network for inference.

    For a module with a weight average, these arrays are the averaged weights. For a module without
    a part named ``network``, the result contains all arrays of the module.
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


def build_network(
    weights: Weights, shape: Sequence[int], actions: int, trunk: Mapping[str, Any]
) -> nn.Module:
    """Build the network that the names in ``weights`` imply, and load ``weights``.

    Raises:
        RuntimeError: If the weights do not fit the network.
    """
    import torch

    from battlesnake_rl.mabs.policy.actor_critic import policy_network_class
    from battlesnake_rl.mabs.policy.q_network import DuelingQNetwork, make_network

    kind = DuelingQNetwork if "advantage.weight" in weights else policy_network_class(trunk)
    network = make_network(kind, shape, actions, trunk)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return network.eval()


class PolicyCheckpoint:
    """Checkpoint with a trained policy.

    Args:
        path: Directory of the checkpoint.
        last: Whether to load the latest weights instead of the weights with the highest Elo. If the
            run had no ladder evaluation, the latest weights are always loaded.
    """

    def __init__(self, path: Path, last: bool = False) -> None:
        self.path = path
        self._last = last

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the checkpoint (`checkpoints.read_metadata`)."""
        return checkpoints.read_metadata(self.path)

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that determine which weights fit.

        Raises:
            CheckpointError: If the checkpoint contains no policy.
        """
        identity: dict[str, Any] = self.metadata["identity"]
        if "observation_shape" not in identity:
            raise CheckpointError(
                f"{self.path} contains no policy: {identity['algorithm']} trains an evaluation for "
                "the search; use the run's model/champion.evaluation"
            )
        return identity

    @property
    def onnx_file(self) -> Path | None:
        """Path of the ONNX file, or None if the network is a torch network."""
        names = (LATEST_ONNX_FILE,) if self._last else (BEST_ONNX_FILE, LATEST_ONNX_FILE)
        return next((self.path / name for name in names if (self.path / name).is_file()), None)

    def load_network(self) -> nn.Module:
        """Load the network.

        The network maps uint8 (B, C, H, W) to scores, float32 (B, 4). Higher scores are better. The
        metadata determines the network. The method unpickles only the weights.

        Raises:
            CheckpointError: If the weights are missing, contain objects other than numbers, or do
                not fit the metadata.
        """
        limit_torch_threads()
        identity = self.identity
        try:
            weights = None if self._last else self.load_best_weights()
            if weights is None:
                weights = inference_weights(self._load_module_state())
            actions, trunk = len(identity["actions"]), identity["network"]
            return build_network(weights, identity["observation_shape"], actions, trunk)
        except CheckpointError:
            raise
        except (OSError, RuntimeError, TypeError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"the weights in {self.path} do not fit its "
                f"{checkpoints.CHECKPOINT_METADATA_FILE}: {error}"
            ) from error

    def load_value_head(self) -> Weights:
        """Load the arrays of an actor-critic's value head.

        For other modules, the result is empty.
        """
        weights = self._load_module_state()
        return {name: np.array(one) for name, one in weights.items() if name.startswith("value.")}

    def load_best_weights(self) -> Weights | None:
        """Load the strongest weights of a run.

        If the run had no ladder evaluation, the method returns None.
        """
        path = self.path / BEST_WEIGHTS_FILE
        if not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    def _load_module_state(self) -> dict[str, Any]:
        """Load the arrays of the trained module.

        If the checkpoint contains several modules, the method loads the first module in
        alphabetical order.

        Raises:
            CheckpointError: If the checkpoint contains no module, or if the arrays have no names.
        """
        from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE

        modules = self.path / COMPONENT_LEARNER_GROUP / COMPONENT_LEARNER / COMPONENT_RL_MODULE
        folders = sorted(path for path in modules.glob("*") if path.is_dir())
        if not folders:
            raise CheckpointError(
                f"{self.path} has no torch network, so start_from cannot use it; omit start_from"
            )
        weights = checkpoints.load_numeric_pickle(folders[0] / "module_state.pkl")
        if not isinstance(weights, dict):
            raise CheckpointError(f"{folders[0]} contains no named weights")
        return weights
