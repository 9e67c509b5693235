"""``battlesnake-gym runs export``: a run or a checkpoint as ``policy.onnx``."""

from __future__ import annotations

import sys
from pathlib import Path

from battlesnake_gym.common.command_line import Parser
from battlesnake_rl.mabs.checkpoint_export import export_checkpoint
from sagemaker_rl.runs import checkpoints


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym runs export",
        description="Turn a checkpoint into policy.onnx and policy.json, which `battlesnake-gym "
        "serve` and the arena play with.",
    )
    parser.add_argument(
        "checkpoint", type=Path, help="a run (its newest checkpoint) or a checkpoint"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("policy.onnx"), help="the file to write"
    )
    parser.add_argument(
        "--last",
        action="store_true",
        help="the last weights, instead of the strongest that games beside training have found",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """``battlesnake-gym runs export``."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.output.suffix != ".onnx":
        options.error(f"--output must end in .onnx, got {arguments.output}")
    try:
        target = export_checkpoint(
            checkpoints.find(arguments.checkpoint), arguments.output, arguments.last
        )
    except checkpoints.CheckpointError as error:
        options.error(str(error))
    sys.stdout.write(f"wrote {target}\n")
    return 0
