"""``battlesnake-gym procgen train``: train a Procgen agent.

The script ``train-procgen.py`` runs the same command.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import nullcontext

from battlesnake_gym.common.command_line import Parser
from sagemaker_rl.job import process_environment
from sagemaker_rl.runs.progress import progress

_PROG = "battlesnake-gym procgen train"
_PROGRESS_INTERVAL_S = 4.0
"""Longest time without a progress line; an iteration of a recipe takes minutes on a few CPUs."""


def parser() -> Parser:
    """Return the parser for ``battlesnake-gym procgen train``."""
    from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

    return ProcgenLauncher().parser(_PROG)


def main(argv: list[str] | None = None) -> int:
    """Train a Procgen agent and return the exit status."""
    process_environment.set_default_variables()  # Must precede the imports of torch and Ray.
    words = sys.argv[1:] if argv is None else argv
    quiet = not {"-h", "--help", "--help-all", "--dry-run"}.isdisjoint(words)
    with nullcontext() if quiet else progress.lines_every(_PROGRESS_INTERVAL_S):
        import torch

        from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

        # RLlib registers a second environment under the same name for the test levels.
        warnings.filterwarnings("ignore", message=".*rllib-single-agent-env-v0 already in registry")
        # The learner runs in this process while the env runners wait. Torch can therefore use every
        # CPU.
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return ProcgenLauncher.train_main(argv, prog=_PROG)
