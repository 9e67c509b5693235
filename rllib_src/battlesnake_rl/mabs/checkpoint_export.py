"""Export of checkpoints as ``policy.onnx`` with ``policy.json``."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from battlesnake_gym import policy_file
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.policy_loader import PolicyCheckpoint, as_score_fn
from battlesnake_rl.mabs.strength.ladder_evaluator import StrengthHistory
from battlesnake_rl.onnx_export import NUM_CHECK_GAMES, check_in_games, write_onnx


def export_checkpoint(checkpoint: Path, target: Path, last: bool = False) -> Path:
    """Write a checkpoint's policy as ONNX and its metadata as JSON.

    Args:
        checkpoint: Directory of the checkpoint.
        target: Path of the ``.onnx`` file; the JSON file has the suffix ``.json``.
        last: Whether to export the latest weights instead of the weights with the highest Elo.

    Returns:
        ``target``.
    """
    policy = PolicyCheckpoint(checkpoint, last)
    identity, env_config = policy.identity, policy.metadata["env_config"]
    history = StrengthHistory.load(checkpoint)
    strongest = None if last or history.best is None else history.measurements[history.best]

    def write(path: Path) -> dict[str, Any]:
        """Write and check the ONNX file; return the metadata of the policy."""
        if (stored := policy.onnx_file) is not None:
            shutil.copy(stored, path)
            model = onnx.load(path)
            versions = {model.producer_name: model.producer_version, "onnx": version("onnx")}
        else:
            network = policy.load_network()
            write_onnx(network, identity["observation_shape"], path)
            check_in_games(path, as_score_fn(network), make_vector_env(NUM_CHECK_GAMES, env_config))
            versions = {name: version(name) for name in ("ray", "torch", "onnx")}
        return {
            "observation": identity["observation"],
            "board_sizes": env_options(env_config).board_sizes,
            "training": {
                "algorithm": identity["algorithm"],
                **{key: value for key, value in policy.metadata.items() if key != "identity"},
            },
            "strength": None if strongest is None else asdict(strongest),
            "versions": {"battlesnake-gym": version("battlesnake-gym"), **versions},
        }

    policy_file.save(target, write)
    return target
