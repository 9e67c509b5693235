"""``battlesnake-gym train-procgen`` and ``train-procgen.py``: one training, or many games."""

from __future__ import annotations

import argparse
import os
import warnings

import torch

from battlesnake_gym.common.command_line import Parser, refuse
from battlesnake_rl.procgen import all_games
from battlesnake_rl.procgen.train_procgen import PROG, ProcgenLauncher, add_games_options


def parser() -> Parser:
    """The command's options."""
    return ProcgenLauncher().parser(PROG)


def main(argv: list[str] | None = None) -> int:
    """Train; the exit status is that of `SageMakerRayLauncher.train_main`."""
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_games_options(options)
    many, rest = options.parse_known_args(argv)
    if many.games is not None:
        return all_games.main(many, rest)
    for name in ("frames", "seeds", "episodes"):
        if getattr(many, name) is not None:
            return refuse(PROG, f"--{name} needs --games; one training takes --timesteps, --seed")
    # RLlib makes one more environment for the test, under the same name.
    warnings.filterwarnings("ignore", message=".*rllib-single-agent-env-v0 already in registry")
    # The learner in this process works while the runners wait, so that it may use every CPU.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return ProcgenLauncher.train_main(argv, prog=PROG)
