"""What several machines of Procgen are refused, by the real programs.

The rehearsals that work are on `docs/procgen.md`, whose commands `tests/wheel/test_pages.py` types,
and in the notebook procgen_2_distributed, which `tests/notebooks/test_notebooks.py` runs.
"""

import subprocess
from pathlib import Path

import pytest

from tests import processes
from tests.processes import COMMAND

pytestmark = [pytest.mark.slow, pytest.mark.rllib, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]

SMALL = [
    *("num_iters=1", "num_env_runners=1", "rl_join_timeout_minutes=9"),
    "rl.training.config.train_batch_size_per_learner=128",
    "rl.training.config.minibatch_size=64",
    "rl.training.config.num_epochs=1",
    "rl.training.config.num_envs_per_env_runner=2",
]
"""A moment's training with one runner, on whatever machine this is."""


def rehearse(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    pytest.importorskip("sagemaker_training", reason="needs the extra sagemaker-simulator")
    pytest.importorskip("ray", reason="needs the extra rllib")
    command = (*COMMAND, "aws", "simulate", "train-procgen.py", "--folder", folder)
    return processes.run(*command, *words, cwd=ROOT)


def test_gpus_that_the_cluster_does_not_have(tmp_path: Path) -> None:
    done = rehearse(
        tmp_path / "job",
        *("--instances", "2", "--hyperparameters", "experiment=homogeneous-gpu", *SMALL),
        "rl.training.config.num_gpus_per_learner=9",
    )
    assert done.returncode != 0
    message = "18 GPUs are wanted in all and there are "
    assert message in (tmp_path / "job" / "algo-1" / "output" / "failure").read_text()
    assert message in (tmp_path / "job" / "algo-2" / "output" / "failure").read_text()
