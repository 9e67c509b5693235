"""Env runners that do not start, and training that diverges or stops, with fakes for RLlib's."""

import json
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.actor_manager import ResultOrError

from battlesnake_gym.common import run_dir
from sagemaker_rl.cluster.membership import ClusterError
from sagemaker_rl.job.job_environment import JobPaths
from sagemaker_rl.job.stop_signals import PendingSignals, deferred_stop_signals
from sagemaker_rl.runs import checkpoints, curves, divergence, training_run
from sagemaker_rl.runs.training_run import TrainingRun


class Algorithm:
    """Env runners that respond after a number of restores."""

    def __init__(self, restores: int) -> None:
        self._left = restores
        self.num_env_runners = 2
        self.stopped = False
        self.env_runner_group = self

    def build_algo(self) -> "Algorithm":
        return self

    def foreach_env_runner(self, function: Any, local_env_runner: bool) -> list[bool]:
        assert not local_env_runner
        return [] if self._left > 0 else [True]

    def restore_env_runners(self, group: Any) -> None:
        assert group is self
        self._left -= 1

    def stop(self) -> None:
        self.stopped = True


def _build(algorithm: Any) -> Any:
    return TrainingRun.build_algorithm(SimpleNamespace(config=algorithm))  # type: ignore[arg-type]


def test_runners_may_take_several_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    algorithm: Any = Algorithm(restores=3)
    assert _build(algorithm) is algorithm
    assert not algorithm.stopped


def test_runners_that_never_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_run, "_ENV_RUNNER_START_TIMEOUT_S", 0.0)
    algorithm: Any = Algorithm(restores=1_000_000)
    with pytest.raises(RuntimeError, match="2 env runner"):
        _build(algorithm)
    assert algorithm.stopped


def test_the_driver_needs_no_runners() -> None:
    algorithm: Any = Algorithm(restores=1_000_000)
    algorithm.num_env_runners = 0
    assert _build(algorithm) is algorithm


class Counting:
    """Trains by counting; a signal arrives in the third iteration."""

    def __init__(self, caught: PendingSignals, signal_after: int = 99) -> None:
        self._iteration = 0
        self._caught, self._signal_after = caught, signal_after
        self.run_progress = math.nan
        self.progress: list[float] = []

    @property
    def training_iteration(self) -> int:
        return self._iteration

    def train(self) -> dict[str, Any]:
        self.progress.append(self.run_progress)
        self._iteration += 1
        if self.training_iteration == self._signal_after:
            self._caught.append(15)
        return {
            "training_iteration": self.training_iteration,
            curves.CSV_COLUMNS["env_steps"]: 8 * self.training_iteration,
            "elo": 1000.0,
        }

    def save_to_path(self, path: str) -> None:
        (Path(path) / "weights").write_text(str(self.training_iteration))

    def stop(self) -> None: ...


Train = Callable[..., TrainingRun]


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Train:
    """Return a function that trains with an algorithm, and returns the run."""

    def train(
        algorithm: Any, signals: PendingSignals | None = None, **settings: Any
    ) -> TrainingRun:
        monkeypatch.setattr(TrainingRun, "build_algorithm", lambda *_: algorithm)
        run = _run(tmp_path, **settings)
        run.train(PendingSignals() if signals is None else signals)
        return run

    return train


def rows(folder: Path) -> list[dict[str, float]]:
    return run_dir.read_progress(folder / run_dir.CSV_FILE)


@pytest.mark.parametrize(("signal_after", "last"), [(99, 2000.0), (3, 1000.0)])
def test_the_last_iteration_is_concluded_unless_a_signal_ends_it(
    train: Train, tmp_path: Path, signal_after: int, last: float
) -> None:
    caught = PendingSignals()
    algorithm: Any = Counting(caught, signal_after)
    concluded: list[int] = []

    def conclude(results: dict[str, Any]) -> None:
        concluded.append(algorithm.training_iteration)
        results["elo"] = 2000.0

    algorithm.conclude = conclude
    train(algorithm, caught, num_iters=3, csv_columns=curves.CSV_COLUMNS | {"elo": "elo"})
    assert concluded == ([3] if last == 2000 else [])
    assert algorithm.progress == pytest.approx([0, 1 / 3, 2 / 3])
    assert [row["elo"] for row in rows(tmp_path)] == [1000, 1000, last]


def test_an_error_of_a_learner_in_another_process_is_raised() -> None:
    results = [ResultOrError(1), ResultOrError(error=RuntimeError("out of memory"))]
    group = SimpleNamespace(foreach_learner=lambda call: results)
    learners = divergence.Learners(SimpleNamespace(learner_group=group))
    with pytest.raises(RuntimeError, match="out of memory"):
        learners.call(lambda learner: 1)
    del results[1]
    assert learners.call(lambda learner: 1) == [1]


class Weighted(Counting):
    """Adds one to its only weight in each iteration; ``fault`` may change the third iteration."""

    def __init__(self, fault: Any) -> None:
        super().__init__(PendingSignals())
        self._fault = fault
        self.module = {"default_policy": torch.nn.Linear(1, 1, bias=False)}
        self._weight = self.module["default_policy"].weight.data.zero_()
        self.learner_group = self

    def foreach_learner(self, function: Any) -> list[Any]:
        return [ResultOrError(function(self))]

    def get_state(self, components: list[str]) -> dict[str, Any]:
        assert components == ["learner/rl_module", "learner/optimizer"]
        return {"learner": {"weight": self._weight, "weights_seq_no": self.training_iteration}}

    def set_state(self, state: dict[str, Any]) -> None:
        assert "weights_seq_no" not in state["learner"], "older weights are not loaded"
        self._weight.copy_(state["learner"]["weight"])

    def train(self) -> dict[str, Any]:
        results = super().train()
        self._weight += 1
        results["learners"] = {
            "default_policy": {"total_loss": 1.0},
            "__all_modules__": {"num_env_steps_trained_lifetime": 10 * self.training_iteration},
        }
        if self.training_iteration == 3:
            self._fault(self, results)
        return results

    def save_to_path(self, path: str) -> None:
        (Path(path) / "weights").write_text(str(self._weight.item()))


def _run(folder: Path, num_iters: int = 5, **settings: Any) -> TrainingRun:
    job = JobPaths("run", folder, folder / "checkpoints", folder / "model", in_sagemaker=False)
    config = PPOConfig().training(lr=1e3, vf_loss_coeff=0.9).debugging(seed=5)
    return TrainingRun(config, job, {}, None, stop_conditions={"num_iters": num_iters}, **settings)


def _nan_weights(algorithm: Weighted, results: Any) -> None:
    algorithm._weight.fill_(math.nan)


def _nan_loss(algorithm: Weighted, results: Any, loss: float = math.nan) -> None:
    results["learners"]["default_policy"]["total_loss"] = loss


def _failed_env_runner(algorithm: Weighted, results: Any) -> None:
    _nan_weights(algorithm, results)
    raise ValueError("the logits are NaN")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (_nan_weights, "weights"),
        (_failed_env_runner, "weights"),
        (_nan_loss, "loss"),
        (partial(_nan_loss, loss=math.inf), "loss"),
    ],
)
def test_training_that_diverges_keeps_the_last_good_weights(
    train: Train, tmp_path: Path, fault: Any, reason: str
) -> None:
    run = train(Weighted(fault))
    told = rf"iteration 3\b.* {reason}.* rl\.training\.config\.lr 1000\.0\b.* iteration 2\b"
    assert re.search(told, run.diverged)
    assert len(run.diverged) <= 200
    assert run.checkpoint is not None
    assert (run.checkpoint / "weights").read_text() == "2.0"
    assert run.checkpoint.name == "checkpoint_000002"
    assert len(rows(tmp_path)) == 2


def test_an_iteration_without_updates_has_not_diverged(train: Train, tmp_path: Path) -> None:
    def nothing_learned(algorithm: Weighted, results: Any) -> None:
        _nan_loss(algorithm, results)
        results["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"] = 20

    assert not train(Weighted(nothing_learned)).diverged
    assert len(rows(tmp_path)) == 5


def test_other_errors_stay_errors(train: Train) -> None:
    def fail(algorithm: Weighted, results: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(Weighted(fail))


def test_training_without_env_steps_fails(train: Train) -> None:
    columns = curves.CSV_COLUMNS | {"env_steps": "missing"}
    with pytest.raises(ClusterError, match="5 iterations had no env steps"):
        train(Counting(PendingSignals()), csv_columns=columns)


def test_a_network_that_is_nan_at_the_start_is_refused(train: Train) -> None:
    algorithm = Weighted(None)
    algorithm._weight.fill_(math.inf)
    with pytest.raises(checkpoints.CheckpointError, match="initial network"):
        train(algorithm)


def test_the_setting_furthest_from_its_default_is_suspected() -> None:
    config = PPOConfig().training(lr=[[0, 1e-3], [1000, 1e-4]], vf_loss_coeff=1e9)
    suspected = divergence.find_likely_cause(config)
    assert suspected == "rl.training.config.vf_loss_coeff 1000000000.0"
    assert divergence.find_likely_cause(PPOConfig()).startswith("rl.training.config.lr ")


def _train_until_stopped(
    algorithm: Weighted, train: Train, monkeypatch: pytest.MonkeyPatch
) -> TrainingRun:
    """Train with an algorithm that sends a stop signal to its process."""
    monkeypatch.setattr(training_run, "_ABORT_TIMEOUT_S", 0.3)
    began = time.monotonic()
    with deferred_stop_signals(raise_immediately=True) as stop_signals:
        run = train(algorithm, stop_signals)
    assert time.monotonic() - began < 30
    return run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_long_iteration_is_aborted_for_the_checkpoint(
    ray_session: None,
    train: Train,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    nothing = ray.remote(num_cpus=99)(lambda: None).remote()  # No machine is that large.

    def wait(algorithm: Weighted, results: Any) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        ray.get(nothing, timeout=60)

    run = _train_until_stopped(Weighted(wait), train, monkeypatch)
    assert run.stopped_by == number
    assert not run.diverged
    assert run.checkpoint is not None
    assert (run.checkpoint / "weights").read_text() == "2.0"
    # The status is written before the export, for which there may be no time.
    assert json.loads((tmp_path / run_dir.RUN_FILE).read_text())["state"] == run_dir.STOPPED


def test_a_stop_cancels_the_final_games_for_the_checkpoint(
    train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def conclude(results: dict[str, Any]) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        time.sleep(60)

    algorithm: Any = Weighted(lambda *_: None)
    algorithm.conclude = conclude
    run = _train_until_stopped(algorithm, train, monkeypatch)
    assert run.checkpoint is not None
    assert (run.checkpoint / "weights").read_text() == "5.0"
    assert len(rows(tmp_path)) == 5


def test_a_run_waits_while_all_env_runners_are_lost(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a run of --num-iters would end with iterations that play no turn."""
    restores: list[int] = []

    def healthy() -> int:
        return int(algorithm.training_iteration < 2 or len(restores) > 3)

    algorithm: Any = Counting(PendingSignals())
    algorithm.env_runner_group = SimpleNamespace(
        num_remote_env_runners=lambda: 1,
        num_healthy_remote_workers=healthy,
        foreach_env_runner=lambda *_, **__: [True] * healthy(),
    )
    algorithm.restore_env_runners = lambda _: restores.append(algorithm.training_iteration)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    train(algorithm)
    assert restores == [2] * 4


def test_a_resumed_run_draws_other_random_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seeds: list[int] = []

    def build(run: TrainingRun) -> Any:
        seeds.append(run.config.seed)
        return Counting(PendingSignals())

    monkeypatch.setattr(TrainingRun, "build_algorithm", build)
    monkeypatch.setattr(checkpoints, "restore_algorithm", lambda *_: None)
    for iterations in (0, 1, 2):
        run = _run(tmp_path)
        run._iterations = iterations
        run.train(PendingSignals())
    assert seeds[0] == 5, "a new run has the given seed"
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("field", ["num_env_runners", "num_learners"])
def test_a_driver_that_waits_for_other_processes_is_no_sign_of_contention(
    tmp_path: Path, field: str
) -> None:
    run = _run(tmp_path)
    run.config.num_env_runners, run._cpu_fraction = 0, 0.5
    assert "50% of a CPU" in run.cpu_contention_message()
    setattr(run.config, field, 1)
    assert run.cpu_contention_message() == ""


def test_progress_shows_only_known_numbers() -> None:
    shown: list[str] = []
    run = SimpleNamespace(
        csv_columns=curves.CSV_COLUMNS, job=SimpleNamespace(in_sagemaker=False),
        _steps=100, _seconds=2.0, _progress_percent=lambda: 5,
    )  # fmt: skip
    bar = SimpleNamespace(disable=False, set_postfix_str=shown.append)
    columns = curves.CSV_COLUMNS
    reward, length = columns["episode_reward_mean"], columns["episode_len_mean"]
    numbers = {length: 12.0, reward: math.nan}
    show: Any = TrainingRun._show_progress
    show(run, bar, numbers)
    show(run, bar, numbers | {reward: 0.5, "elo": 1500.0, "elo_low": 1400.0, "elo_high": 1600.0})
    assert shown == [
        "length 12.0, 50 env steps/s",
        "reward 0.5, length 12.0, 50 env steps/s, 1500 Elo (1400 to 1600)",
    ]
