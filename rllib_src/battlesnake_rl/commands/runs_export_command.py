"""``battlesnake-gym runs export``: export a checkpoint's policy to ONNX."""

from __future__ import annotations

import sys
from pathlib import Path

from battlesnake_gym.common.command_line import Parser, output_file
from battlesnake_rl.mabs.checkpoint_export import export_checkpoint
from sagemaker_rl.runs import checkpoints


def parser() -> Parser:
    """Return the parser for ``battlesnake-gym runs export``."""
    parser = Parser(
        prog="battlesnake-gym runs export",
        description="Export a checkpoint as policy.onnx and policy.json, for the commands `serve` "
        "and `arena`.",
    )
    add = parser.add_argument
    add("checkpoint", type=Path, help="checkpoint, or run (its latest checkpoint)")
    add("-o", "--output", type=output_file, default=Path("policy.onnx"), help="output file")
    add("--last", action="store_true",
        help="export the latest weights instead of the highest-Elo weights")  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``battlesnake-gym runs export`` and return the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.output.suffix != ".onnx":
        options.error(f"--output must end in .onnx, got {arguments.output}")
    try:
        target = export_checkpoint(
            checkpoints.find_checkpoint(arguments.checkpoint), arguments.output, arguments.last
        )
    except checkpoints.CheckpointError as error:
        options.error(str(error))
    sys.stdout.write(f"wrote {target}\n")
    return 0
