"""``battlesnake-gym train`` and ``train-mabs.py``: train a Battlesnake policy."""

from __future__ import annotations

import sys

from battlesnake_gym.common.command_line import Parser
from sagemaker_rl.job import process_environment


def parser() -> Parser:
    """Return the parser for ``battlesnake-gym train``."""
    from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher

    return BattlesnakeLauncher().parser("battlesnake-gym train")


def main(argv: list[str] | None = None) -> int:
    """Train a Battlesnake policy and return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if sys.stderr.isatty() and {"-h", "--help", "--help-all", "--dry-run"}.isdisjoint(words):
        sys.stderr.write("starting PyTorch and Ray, which takes some seconds ...\n")
    process_environment.set_default_variables()  # Must precede the imports of torch and Ray.
    from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher

    return BattlesnakeLauncher.train_main(argv, prog="battlesnake-gym train")
