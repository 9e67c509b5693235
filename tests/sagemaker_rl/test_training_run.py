"""Runners that do not start, with stand-ins for RLlib's."""

from typing import Any

import pytest

from sagemaker_rl import training_run

pytestmark = pytest.mark.rllib


class Algorithm:
    """One whose runners answer when they have been restored so often."""

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
    monkeypatch.setattr(training_run, "RUNNERS_SECONDS", 0.0)
    algorithm: Any = Algorithm(restores=1_000_000)
    with pytest.raises(RuntimeError, match="none of 2 runners started"):
        training_run.build(algorithm)
    assert algorithm.stopped


def test_the_driver_needs_no_runners() -> None:
    algorithm: Any = Algorithm(restores=1_000_000)
    algorithm.num_env_runners = 0
    assert training_run.build(algorithm) is algorithm
