"""Checks of the base launcher before training, and its results."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import psutil
import pytest
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

from battlesnake_gym.common.run_dir import LOCK_FILE, RUN_FILE
from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import JobPaths
from sagemaker_rl.job.resources import BufferSize, check_cluster, check_cpus, check_memory
from sagemaker_rl.ray_launcher import Hyperparameters, SageMakerRayLauncher
from sagemaker_rl.runs.launch import Launch, _save_model_artifacts
from sagemaker_rl.runs.training_run import TrainingRun
from tests.processes import run

pytestmark = pytest.mark.filterwarnings("default")


class CartPole(SageMakerRayLauncher):
    """An experiment of a user."""

    def register_env_creator(self) -> None:
        """Do nothing: it is registered already."""

    def get_experiment_config(self, hyperparameters: Any) -> PPOConfig:
        return PPOConfig().environment("CartPole-v1")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make this process the head of three instances."""
    for name, value in {
        "SM_HOSTS": '["algo-1", "algo-2", "algo-3"]',
        "SM_CURRENT_HOST": "algo-1",
        "SM_MODEL_DIR": str(tmp_path / "model"),
        "SM_OUTPUT_DATA_DIR": str(tmp_path / "output" / "data"),
        "SAGEMAKER_BASE_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


OF_JOBS = {
    "--rl-join-timeout-minutes": "3",
    "--aws-region": "us-east-1",
    "--allow-idle-instances": "true",
    "--s3-bucket": "runs",
}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_env_runners": 0}, r"3.* num_env_runners.* 0"),
        ({"num_itres": 1}, r"num_itres.* num_iters"),
        ({"rl.training.config.num_env_runners": 4}, "num_env_runners"),
        ({"rl.training.config.gamma": "high"}, r"rl\.training\.config\.gamma.* float"),
        ({"rl_cluster_type": "primary"}, r"rl_cluster_type.* s3_bucket"),
    ],
)
def test_mistakes_are_the_reason_of_the_failure(
    job: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("SM_HPS", json.dumps({"num_iters": 1} | values))
    assert CartPole.train_main([]) == 2
    assert re.search(message, (job / "output" / "failure").read_text())
    assert not (job / "model").exists()


def test_a_check_starts_nothing_and_counts_no_processors(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Launch, "_run_training", lambda *_: pytest.fail("it has started"))
    given = {"num_iters": 1, "num_env_runners": 1000, "rl.training.config.num_gpus_per_learner": 1}
    monkeypatch.setenv("SM_HPS", json.dumps(given))
    for hosts in ('["algo-1", "algo-2"]', '["algo-1"]'):
        monkeypatch.setenv("SM_HOSTS", hosts)
        assert CartPole.train_main(["--dry-run"]) == 0
        assert capsys.readouterr().out
    monkeypatch.setenv("SM_HPS", '{"num_itres": 1}')
    assert CartPole.train_main(["--dry-run"]) == 2
    assert not (job / "model").exists()


def test_several_instances_are_a_cluster_of_their_own(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert CartPole.train_main(["--num-iters", "1", "--ray-address", "10.0.0.1:6379"]) == 2
    assert re.search(r"--ray-address.* 10\.0\.0\.1:6379.* 3", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ("--num-env-runners=0 --ray-address=127.0.0.1:1", 2, "num_env_runners is 0"),
        # Nothing listens on this port.
        ("--num-env-runners=1 --ray-address=127.0.0.1:1", 1, r"127\.0\.0\.1:1"),
        ("--num-env-runners=1 --ray-address=somewhere", 1, "somewhere"),
        ("--dry-run --no-resume --trust-checkpoint", 2, "--trust-checkpoint .*with --no-resume"),
        ("--dry-run --name=..", 2, r"--name must be .*, got '\.\.'"),
        ("--dry-run --name=a/b", 2, "--name must be .*, got 'a/b'"),
        *(
            (f"--dry-run {flag}={value}", 2, f"{flag} has no effect outside a SageMaker job")
            for flag, value in OF_JOBS.items()
        ),
    ],
)
def test_options_that_cannot_work_are_rejected_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, status: int, message: str
) -> None:
    words = ["--num-iters=1", f"--runs-dir={tmp_path / 'runs'}", *options.split()]
    assert CartPole.train_main(words) == status
    assert re.search(message, capsys.readouterr().err)
    left = {path.name for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert left <= {LOCK_FILE, RUN_FILE}


def test_settings_of_jobs_are_taken_in_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SM_HOSTS", '["algo-1"]')
    of_jobs = [f"{flag}={value}" for flag, value in OF_JOBS.items() if flag != "--s3-bucket"]
    options = ["--num-iters=1", "--dry-run", f"--runs-dir={tmp_path}", *of_jobs]
    assert CartPole.train_main(options) == 0


@pytest.mark.parametrize(
    ("cpus", "settings", "most"),
    [
        (1, {}, 1),
        (2, {}, 1),
        (8, {}, 7),
        (8, {"num_learners": 2, "num_gpus_per_learner": 0}, 5),
        (8, {"num_learners": 2, "num_gpus_per_learner": 1}, 7),
        (8, {"evaluation_num_env_runners": 3}, 4),
        (8, {"num_learners": 2, "num_cpus_per_learner": 3}, 1),
        (8, {"evaluation_num_env_runners": 2, "num_cpus_per_env_runner": 2}, 1),
        (9, {"num_cpus_per_env_runner": 2}, 4),
        (9, {"num_cpus_per_env_runner": 0.5}, 16),
    ],
)
def test_one_cpu_is_the_drivers(cpus: int, settings: dict[str, Any], most: int) -> None:
    config = PPOConfig().update_from_dict(settings)
    for fitting in (0, most):
        config.num_env_runners = fitting
        check_cpus(config, cpus)
    config.num_env_runners = most + 1
    with pytest.raises(HyperparameterError, match=rf"\b0 .*\b{most}\b.* {most + 1}\b"):
        check_cpus(config, cpus)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_learners": 3},
        {"num_learners": 1, "num_cpus_per_learner": 3},
        {"evaluation_num_env_runners": 3},
    ],
)
def test_learners_and_evaluation_without_enough_cpus_are_refused(settings: dict[str, Any]) -> None:
    config = PPOConfig().update_from_dict(settings | {"num_env_runners": 0})
    check_cpus(config, 3)
    with pytest.raises(HyperparameterError, match=r"need 3 CPUs, but there are 2;"):
        check_cpus(config, 2)


@pytest.mark.parametrize(
    ("full_gib", "container_gib", "told"),
    [
        (1, None, ""),
        (12, None, r"warning: .*capacity.* 1000.* 12.0 GiB"),
        (17, None, r".*17.0 GiB.* 16.0 GiB"),
        (5, 4, r".*5.0 GiB.* 4.0 GiB"),
        (3.5, 4, r"warning: .* 4.0 GiB.* 2.0 GiB"),
    ],
)
def test_a_buffer_that_does_not_fit_into_memory_is_refused_or_warned_about(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    full_gib: float,
    container_gib: int | None,
    told: str,
) -> None:
    memory = SimpleNamespace(total=16 * 2**30, available=10 * 2**30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    if container_gib is not None:
        (tmp_path / "memory.max").write_text(f"{container_gib * 2**30}\n")
        (tmp_path / "memory.current").write_text(f"{3 * 2**29}\n")
    config: Any = PPOConfig()
    assert check_memory(config, tmp_path) == "", "RLlib's PPO keeps nothing"
    config = config.env_runners(num_env_runners=0)
    size = BufferSize("replay_capacity", 1000, int(full_gib * 2**30))
    object.__setattr__(config, "full_buffer", lambda: size)
    if told and not told.startswith("warning"):
        with pytest.raises(HyperparameterError, match=told):
            check_memory(config, tmp_path)
    else:
        assert re.match(told or "$", check_memory(config, tmp_path))


@pytest.mark.parametrize(
    ("settings", "here", "cluster"),
    [
        ({"num_learners": 0, "num_gpus_per_learner": 1}, 1, 1),
        ({"num_learners": 2, "num_gpus_per_learner": 1}, 1, 2),
        ({"num_learners": 2, "num_gpus_per_learner": 1}, 0, 2),
        ({"num_learners": 1, "num_gpus_per_learner": 0.5}, 0, 1),
        ({"num_env_runners": 4, "num_gpus_per_env_runner": 0.5}, 0, 2),
        ({}, 0, 0),
    ],
)
def test_gpus_are_those_of_the_cluster(
    settings: dict[str, Any], here: int, cluster: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: here)
    config = PPOConfig().update_from_dict(settings)
    check_cluster(config, 9, cluster, {})
    if cluster:
        with pytest.raises(HyperparameterError, match=rf"\b{cluster - 1}\b"):
            check_cluster(config, 9, cluster - 1, {})


def test_a_learner_in_the_driver_needs_a_gpu_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    config = PPOConfig().learners(num_learners=0, num_gpus_per_learner=1)
    with pytest.raises(HyperparameterError, match="1 GPUs"):
        check_cluster(config, 9, 4, {})


@pytest.mark.parametrize(("works", "there", "usable"), [(False, 1, 0), (True, 1, 1)])
def test_gpus_that_are_paid_for_must_work(
    works: bool, there: int, usable: int, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an old driver, torch counts GPUs that it cannot use."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: works)
    monkeypatch.setattr("torch.cuda.device_count", lambda: there)
    monkeypatch.setenv("SM_NUM_GPUS", "4")
    assert CartPole.train_main(["--num_iters", "1"]) == 2
    failure = (job / "output" / "failure").read_text()
    version = re.escape(torch.__version__)
    assert re.search(rf"\b4 GPUs.* {version} .*\b{usable}\b.* driver", failure)


RAY_UNDER_A_SIGNAL = """
import os, signal
from sagemaker_rl.cluster.local_ray import local_ray
from sagemaker_rl.job.stop_signals import deferred_stop_signals

with deferred_stop_signals() as caught, local_ray(num_cpus=1):
    os.kill(os.getpid(), signal.SIGTERM)
    assert caught == [signal.SIGTERM]
"""


def test_sigterm_is_ours_though_ray_takes_it_when_it_starts() -> None:
    done = run(sys.executable, "-c", RAY_UNDER_A_SIGNAL)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("ray_session")
def test_a_local_ray_listens_on_the_loopback_interface_alone() -> None:
    ray.get(ray.remote(num_cpus=0)(lambda: 0).remote())  # A worker process listens, too.
    heard = {
        (process.name(), connection.laddr.ip)
        for process in psutil.Process().children(recursive=True)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert any("raylet" in name for name, _ in heard)
    strangers = {(name, ip) for name, ip in heard if "127.0.0.1" not in ip and ip != "::1"}
    assert strangers == set()


def test_curves_come_back_with_the_checkpoint(tmp_path: Path) -> None:
    def run(checkpoint: Path | None) -> TrainingRun:
        folders = {"checkpoint_dir": tmp_path / "c", "model_dir": tmp_path / "m"}
        where = JobPaths("job", tmp_path / "new" / "data", **folders, in_sagemaker=True)
        return TrainingRun(PPOConfig(), where, {}, checkpoint, stop_conditions={"num_iters": 3})

    checkpoint = tmp_path / "checkpoint_000002"
    checkpoint.mkdir()
    (checkpoint / "metadata.json").write_text('{"identity": {}, "training_iteration": 2}')
    curves = tmp_path / "new" / "data" / "progress.csv"
    for without in (run(None), run(checkpoint)):
        without.restore_progress_csv()
        assert not curves.exists()
    (checkpoint / "progress.csv").write_text("old")
    run(checkpoint).restore_progress_csv()
    assert curves.read_text() == "old"
    curves.write_text("of iterations that are trained again, and torn")
    run(checkpoint).restore_progress_csv()
    assert curves.read_text() == "old"


def test_a_model_has_its_checkpoint_and_parameters_beside_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint_000003"
    (checkpoint / "learner").mkdir(parents=True)
    (checkpoint / "learner" / "weights").write_text("1")
    model = tmp_path / "model"
    values = Hyperparameters(seed=3, s3_bucket="mine", rl_cluster_type="primary").recorded()
    for _ in range(2):
        _save_model_artifacts(checkpoint, model, {"hyperparameters": values})
    assert (model / "checkpoint" / "learner" / "weights").read_text() == "1"
    written = json.loads((model / "params.json").read_text())["hyperparameters"]
    assert written["seed"] == 3
    assert not {"s3_bucket", "rl_cluster_type"} & written.keys()


class Lonely(CartPole):
    """Env runners lack a requirement that the driver has."""

    def register_env_creator(self) -> None:
        register_env("lonely", _make_lonely)

    def get_experiment_config(self, hyperparameters: Any) -> PPOConfig:
        return PPOConfig().environment("lonely")


def _make_lonely(context: Any) -> Any:
    if context.worker_index > 0:
        raise ImportError("there are no games on this machine")
    return gymnasium.make("CartPole-v1")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_runners_that_all_fail_are_not_waited_for(ray_session: None, job: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SM_HOSTS", '["algo-1"]')
        with pytest.raises(RuntimeError, match="1 env runner"):
            Lonely.train_main(["--num-iters", "1", "--num-env-runners", "1"])
    assert "RuntimeError: " in (job / "output" / "failure").read_text()
