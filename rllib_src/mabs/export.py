"""From a checkpoint to ``policy.onnx``, with all that a server must know beside it."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
from ray.rllib.core import (
    COMPONENT_LEARNER,
    COMPONENT_LEARNER_GROUP,
    COMPONENT_RL_MODULE,
    DEFAULT_MODULE_ID,
)
from ray.rllib.core.rl_module.rl_module import RLModule
from torch import nn

from battlesnake_gym.files import write_atomically
from sagemaker_rl import checkpoints

FORMAT = 1
MODULE_FOLDER = (
    Path(COMPONENT_LEARNER_GROUP) / COMPONENT_LEARNER / COMPONENT_RL_MODULE / DEFAULT_MODULE_ID
)
"""Where the network stands in a checkpoint."""


def load_network(checkpoint: Path) -> nn.Module:
    """The network of a checkpoint: (B, C, H, W) uint8 to (B, 4) float32, higher is better."""
    network: nn.Module = RLModule.from_checkpoint(
        str((checkpoint / MODULE_FOLDER).absolute())
    ).network
    return network.eval()


def export_checkpoint(checkpoint: Path, target: Path) -> Path:
    """Write ``target`` and, beside it, the same name ending in ``.json``; returns ``target``."""
    facts = checkpoints.read_facts(checkpoint)
    identity = facts["identity"]
    network = load_network(checkpoint)
    write_atomically(target, lambda path: write_onnx(network, identity["observation shape"], path))
    metadata = {
        "format": FORMAT,
        "observation": identity["observation"],
        "board_sizes": [identity["board size"]],
        "actions": identity["actions"],
        "training": {
            "algorithm": identity["algorithm"],
            **{key: value for key, value in facts.items() if key != "identity"},
        },
        "versions": {name: version(name) for name in ("battlesnake-gym", "ray", "torch", "onnx")},
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
    }
    text = json.dumps(metadata, indent=2) + "\n"
    write_atomically(target.with_suffix(".json"), lambda path: path.write_text(text))
    return target


def write_onnx(network: nn.Module, shape: list[int], path: Path) -> None:
    """Write the network for any number of boards of (C, H, W) ``shape``."""
    example = torch.zeros((2, *shape), dtype=torch.uint8)
    # The exporter logs every optional package that it does without.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (example,),
            str(path),
            input_names=["observations"],
            output_names=["q_values"],
            dynamic_shapes={"planes": {0: torch.export.Dim("batch")}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def main(argv: list[str] | None = None) -> int:
    """``battlesnake-gym export``."""
    parser = argparse.ArgumentParser(
        prog="battlesnake-gym export",
        description="Turn a checkpoint into policy.onnx and policy.json, which `battlesnake-gym "
        "serve` and the arena play with.",
    )
    parser.add_argument(
        "checkpoint", type=Path, help="a run (its newest checkpoint) or a checkpoint"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("policy.onnx"), help="default: policy.onnx"
    )
    arguments = parser.parse_args(argv)
    if arguments.output.suffix != ".onnx":
        parser.error(f"--output must end in .onnx, got {arguments.output}")
    try:
        checkpoint = checkpoints.find(arguments.checkpoint)
    except checkpoints.CheckpointError as error:
        parser.error(str(error))
    sys.stdout.write(f"wrote {export_checkpoint(checkpoint, arguments.output)}\n")
    return 0
