"""Rejected Procgen jobs of several instances, with the real programs.

`tests/wheel/test_pages.py` runs the jobs in `docs/how-to/train-procgen.md`, and `tests/notebooks/`
those in the notebook procgen_2_distributed.
"""

import subprocess
from pathlib import Path

import pytest

from tests import processes
from tests.processes import COMMAND

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]

SMALL = [
    *("num_iters=1", "num_env_runners=1", "rl_join_timeout_minutes=9"),
    "rl.training.config.train_batch_size_per_learner=128",
    "rl.training.config.minibatch_size=64",
    "rl.training.config.num_epochs=1",
    "rl.training.config.num_envs_per_env_runner=2",
]
"""A short training with one env runner, for any machine."""


def simulate(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    pytest.importorskip("sagemaker_training", reason="needs the extra sagemaker-simulator")
    pytest.importorskip("ray", reason="needs the extra rllib")
    command = (*COMMAND, "aws", "simulate", "train-procgen.py", "--job-dir", folder)
    return processes.run(*command, *words, cwd=ROOT)


def test_gpus_that_the_cluster_does_not_have(tmp_path: Path) -> None:
    done = simulate(
        tmp_path / "job",
        *("--instance-count", "2", "--hyperparameters", "experiment=homogeneous-gpu", *SMALL),
        "rl.training.config.num_gpus_per_learner=9",
    )
    assert done.returncode != 0
    message = "18 GPUs"
    assert message in (tmp_path / "job" / "algo-1" / "output" / "failure").read_text()
    assert message in (tmp_path / "job" / "algo-2" / "output" / "failure").read_text()
