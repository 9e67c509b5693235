"""From a checkpoint to ``policy.onnx``, with all that a server must know beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from battlesnake_gym import policy_file
from battlesnake_gym.common.files import write_atomically
from battlesnake_rl.mabs.envs.env_factory import board_sizes
from battlesnake_rl.mabs.policy.policy_loader import load_network, policy_identity
from battlesnake_rl.mabs.strength.ladder_evaluator import StrengthHistory
from battlesnake_rl.onnx_export import write_onnx
from sagemaker_rl.runs import checkpoints


def export_checkpoint(checkpoint: Path, target: Path, last: bool = False) -> Path:
    """Write ``target`` and, beside it, the same name ending in ``.json``; returns ``target``.

    It is the strongest that the run has had, as far as it was measured, or the ``last``.
    """
    facts = checkpoints.read_metadata(checkpoint)
    identity = policy_identity(checkpoint)
    versions = {}
    write_atomically(target, lambda path: versions.update(_write(checkpoint, identity, path, last)))
    record = StrengthHistory.of(checkpoint)
    strongest = None if last or record.best is None else record.measurements[record.best]
    metadata = {
        "observation": identity["observation"],
        "board_sizes": board_sizes(facts["env_config"]),
        "training": {
            "algorithm": identity["algorithm"],
            **{key: value for key, value in facts.items() if key != "identity"},
        },
        "strength": None if strongest is None else asdict(strongest),
        "versions": {"battlesnake-gym": version("battlesnake-gym"), **versions},
    }
    policy_file.write_metadata(target, metadata)
    return target


def _write(checkpoint: Path, identity: Mapping[str, Any], path: Path, last: bool) -> dict[str, str]:
    """Write the ONNX file; returns the versions of what wrote it."""
    shape = identity["observation_shape"]
    write_onnx(load_network(checkpoint, last), shape, path)
    return {name: version(name) for name in ("ray", "torch", "onnx")}
