"""``battlesnake-gym procgen train`` and ``train-procgen.py``: train an agent."""

from __future__ import annotations

import os
import warnings

from battlesnake_gym.common.command_line import Parser
from sagemaker_rl.job import process_environment

_PROG = "battlesnake-gym procgen train"


def parser() -> Parser:
    """Return the command's parser."""
    from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

    return ProcgenLauncher().parser(_PROG)


def main(argv: list[str] | None = None) -> int:
    """Train and return the exit status of `SageMakerRayLauncher.train_main`."""
    process_environment.set_defaults()  # before torch and Ray are imported
    import torch

    from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher

    # RLlib creates a second environment under the same name for the test levels.
    warnings.filterwarnings("ignore", message=".*rllib-single-agent-env-v0 already in registry")
    # The learner runs in this process while the env runners wait, so torch can use every CPU.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return ProcgenLauncher.train_main(argv, prog=_PROG)
