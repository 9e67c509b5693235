"""MLflow and Weights & Biases without a network: what they keep of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra rllib")
from battlesnake_rl.launcher.runs import tracking
from battlesnake_rl.launcher.runs.tracking import Tracking
from tests.processes import until

SETTINGS = {"algorithm": "DQN", "lr": 1e-4, "seed": None, "rl": {"n_step": 3}}
NAMED = {"reward": "env_runners/mean", "elo": "elo"}

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Everything is kept in files."""
    for name, value in {
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def log(track: str, folder: Path) -> None:
    """Two iterations; Elo is not known in the first."""
    with Tracking(track, "winner", folder, SETTINGS, NAMED) as told:
        told.log({"env_runners/mean": 1.5, "elo": float("nan"), "config/lr": 1.0}, 1)
        told.log({"env_runners/mean": 2.5, "elo": 900.0}, 2)


def test_mlflow(offline: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra tracking")
    log("mlflow", offline)
    with (
        pytest.raises(RuntimeError, match="out of memory"),
        Tracking("mlflow", "unlucky", offline, SETTINGS, NAMED),
    ):
        raise RuntimeError("out of memory")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("battlesnake-gym")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert {name: run.info.status for name, run in runs.items()} == {
        "winner": "FINISHED",
        "unlucky": "FAILED",
    }
    winner = runs["winner"]
    assert winner.data.params == {"algorithm": "DQN", "lr": "0.0001", "rl.n_step": "3"}
    assert winner.data.metrics == {"reward": 2.5, "elo": 900}
    history = client.get_metric_history(winner.info.run_id, "reward")
    assert [(one.step, one.value) for one in history] == [(1, 1.5), (2, 2.5)]
    assert list((offline / "mlruns").rglob("meta.yaml"))


def test_weights_and_biases(offline: Path) -> None:
    pytest.importorskip("wandb", reason="needs the extra tracking")
    log("wandb", offline)
    (kept,) = (offline / "wandb").glob("offline-run-*/run-*.wandb")
    told = (b"reward", b"2.5", b"elo", b"winner", b"rl.n_step", b"battlesnake-gym")
    # Who writes it is a process of its own, which may come after.
    until(lambda: all(word in kept.read_bytes() for word in told))
    assert b"config/lr" not in kept.read_bytes()


def test_what_is_not_known_or_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown track 'mlfow'; did you mean mlflow"):
        tracking.check("mlfow")
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="track is wandb, and the package 'wandb' is missing"):
        tracking.check("wandb")
    tracking.check(None)


def test_a_training_logs_what_it_names(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra tracking")
    from battlesnake_rl.launcher.launch.job import Job
    from battlesnake_rl.launcher.runs import training_run
    from tests.sagemaker_rl.test_training_run import Counting

    caught: list[int] = []
    monkeypatch.setattr(training_run, "build", lambda config: Counting(caught))
    job = Job("counted", offline, offline / "checkpoints", offline / "model", in_sagemaker=False)
    config: Any = None
    training_run.TrainingRun(
        config, job, {}, None, num_iters=3, minutes=None, track="mlflow",
        named={"strength": "elo"}, settings={"lr": 0.5},
    ).train(caught)  # fmt: skip
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("battlesnake-gym")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "counted"
    assert run.data.params == {"lr": "0.5"}
    assert run.data.metrics == {"strength": 1000}
    assert len(client.get_metric_history(run.info.run_id, "strength")) == 3
