"""Env runners that do not start, with fakes for RLlib's."""

from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.common import run_dir
from sagemaker_rl.job.job_environment import JobPaths
from sagemaker_rl.job.stop_signals import PendingSignals
from sagemaker_rl.runs import training_run

pytestmark = pytest.mark.rllib


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


def test_runners_may_take_several_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    algorithm: Any = Algorithm(restores=3)
    assert training_run.build(algorithm) is algorithm
    assert not algorithm.stopped


def test_runners_that_never_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_run, "_ENV_RUNNER_START_TIMEOUT_S", 0.0)
    algorithm: Any = Algorithm(restores=1_000_000)
    with pytest.raises(RuntimeError, match="none of 2 env runners started"):
        training_run.build(algorithm)
    assert algorithm.stopped


def test_the_driver_needs_no_runners() -> None:
    algorithm: Any = Algorithm(restores=1_000_000)
    algorithm.num_env_runners = 0
    assert training_run.build(algorithm) is algorithm


class Counting:
    """Trains by counting; a signal arrives in the third iteration."""

    def __init__(self, caught: PendingSignals, signal_after: int = 99) -> None:
        self.training_iteration = 0
        self._caught, self._signal_after = caught, signal_after

    def train(self) -> dict[str, Any]:
        self.training_iteration += 1
        if self.training_iteration == self._signal_after:
            self._caught.append(15)
        return {"training_iteration": self.training_iteration, "elo": 1000.0}

    def save_to_path(self, path: str) -> None:
        (Path(path) / "weights").write_text(str(self.training_iteration))

    def stop(self) -> None: ...


@pytest.mark.parametrize(("signal_after", "last"), [(99, 2000.0), (3, 1000.0)])
def test_the_last_iteration_is_concluded_unless_a_signal_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, signal_after: int, last: float
) -> None:
    caught = PendingSignals()
    monkeypatch.setattr(training_run, "build", lambda config: Counting(caught, signal_after))
    concluded: list[int] = []

    def conclude(algorithm: Counting, results: dict[str, Any]) -> None:
        concluded.append(algorithm.training_iteration)
        results["elo"] = 2000.0

    columns = training_run.CSV_COLUMNS | {"elo": "elo"}
    job = JobPaths(
        "run", tmp_path, tmp_path / "checkpoints", tmp_path / "model", in_sagemaker=False
    )
    config: Any = None
    run = training_run.TrainingRun(
        config, job, {}, None, num_iters=3, minutes=None, csv_columns=columns, conclude=conclude
    )
    run.train(caught)
    assert concluded == ([3] if last == 2000 else [])
    assert [row["elo"] for row in run_dir.read_progress(tmp_path / "progress.csv")] == [
        1000,
        1000,
        last,
    ]
