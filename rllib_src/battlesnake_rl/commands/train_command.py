"""``battlesnake-gym train`` and ``train-mabs.py``: train a Battlesnake policy."""

from __future__ import annotations

import functools

from battlesnake_gym.common.command_line import Parser
from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher

_PROG = "battlesnake-gym train"


def parser() -> Parser:
    """Return the parser for ``battlesnake-gym train``."""
    return BattlesnakeLauncher().parser(_PROG)


main = functools.partial(BattlesnakeLauncher.train_main, prog=_PROG)
"""Train a Battlesnake policy and return the exit status."""
