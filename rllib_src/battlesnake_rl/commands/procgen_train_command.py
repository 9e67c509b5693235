"""``battlesnake-gym procgen train`` and ``train-procgen.py``: train an agent on a Procgen game."""

from __future__ import annotations

import os
import warnings

import torch

from battlesnake_gym.common.command_line import Parser
from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

_PROG = "battlesnake-gym procgen train"


def parser() -> Parser:
    """The command's options."""
    return ProcgenLauncher().parser(_PROG)


def main(argv: list[str] | None = None) -> int:
    """Train; the exit status is that of `SageMakerRayLauncher.train_main`."""
    # RLlib makes one more environment for the test, under the same name.
    warnings.filterwarnings("ignore", message=".*rllib-single-agent-env-v0 already in registry")
    # The learner in this process works while the runners wait, so that it may use every CPU.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return ProcgenLauncher.train_main(argv, prog=_PROG)
