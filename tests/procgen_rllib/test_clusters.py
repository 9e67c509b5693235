"""The experiments for several machines, rehearsed as SageMaker jobs by the real programs."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests import processes
from tests.processes import COMMAND

pytestmark = [pytest.mark.slow, pytest.mark.rllib, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]

SMALL = [
    *("num_iters=1", "num_workers=1", "rl_join_minutes=9"),
    "rl.training.config.train_batch_size_per_learner=128",
    "rl.training.config.minibatch_size=64",
    "rl.training.config.num_epochs=1",
    "rl.training.config.num_envs_per_env_runner=2",
]
"""A moment's training with one runner, on whatever machine this is."""


def rehearse(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    pytest.importorskip("sagemaker_training", reason="needs the extra sagemaker-local")
    pytest.importorskip("ray", reason="needs the extra rllib")
    command = (*COMMAND, "sagemaker-local", "train-procgen.py", "--folder", folder)
    return processes.run(*command, *words, cwd=ROOT)


def delivered(folder: Path) -> set[str]:
    with tarfile.open(folder / "model.tar.gz") as archive:
        return set(archive.getnames())


def test_two_equal_machines(tmp_path: Path) -> None:
    done = rehearse(
        tmp_path / "job",
        *("--instances", "2", "--hyperparameters", "experiment=homogeneous-cpu", *SMALL),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "algo-1 | 1 of 1 other instances are ready" in done.stdout
    assert "algo-1 | training_iteration=1 " in done.stdout
    assert "algo-2 | algo-2 ends: training is done" in done.stdout
    assert "./checkpoint/facts.json" in delivered(tmp_path / "job")


def test_one_machine_learns_and_two_play(tmp_path: Path) -> None:
    done = rehearse(
        tmp_path / "job",
        *("--secondary", "2", "--hyperparameters", "experiment=heterogeneous", *SMALL),
        "rl.training.config.num_gpus_per_learner=0",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "primary/algo-1 | training_iteration=1 " in done.stdout
    assert "secondary/algo-2 | secondary/algo-2 ends: training is done" in done.stdout
    assert "./checkpoint/facts.json" in delivered(tmp_path / "job")


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
