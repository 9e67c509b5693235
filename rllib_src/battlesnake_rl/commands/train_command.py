"""``battlesnake-gym train`` and ``train-mabs.py``: train a snake."""

from __future__ import annotations

from battlesnake_gym.common.command_line import Parser
from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher


def parser() -> Parser:
    """The command's options."""
    return BattlesnakeLauncher().parser("battlesnake-gym train")


def main(argv: list[str] | None = None) -> int:
    """Train; the exit status is that of `SageMakerRayLauncher.train_main`."""
    return BattlesnakeLauncher.train_main(argv, prog="battlesnake-gym train")
