"""The benchmark of training measures what it says."""

import dataclasses
import time

import pytest

from benchmarks import training
from benchmarks.training import Figures, Stopwatch, table

SEEN = Figures(
    sampling=100.0,
    agent_steps=20.0,
    updates=2.0,
    agent_steps_wall=30.0,
    replay_ratio=2.0,
    torch_share=0.5,
    memory=10.0,
)


def test_figures_are_compared_with_the_right_ones() -> None:
    faster = dataclasses.replace(SEEN, sampling=1_100.0, updates=13.0)
    text = table({"stock": SEEN, "dqn": faster})
    assert "sampling 11.0 times as fast, updates 6.5 times" in text
    assert "| dqn | 1,100 | 20 | 13.0 | 30 | 2.00 | 50.0% | 10 |" in text
    apex = dataclasses.replace(SEEN, agent_steps=18.0, agent_steps_wall=45.0)
    text = table({"dqn-0.25": SEEN, "apex-0.25": apex})
    assert "0.90 times the agent-steps for a CPU-second, 1.50 times by the clock" in text
    assert "times" not in table({"dqn": SEEN})


def test_runners_elsewhere_have_no_share_in_torch() -> None:
    assert "%" not in table({"apex-0.25": SEEN})


def test_a_stopwatch_counts_work_and_not_waiting() -> None:
    class Worker:
        def work(self) -> int:
            return sum(range(200_000))

        def wait(self) -> None:
            time.sleep(0.5)

    stopwatch = Stopwatch()
    stopwatch.watch(Worker, "wait")
    Worker().wait()
    waited = stopwatch.seconds
    stopwatch.watch(Worker, "work")
    assert Worker().work() == sum(range(200_000))
    assert waited < 0.4
    assert stopwatch.seconds > waited


def test_lifetime_counts_leave_rates_out() -> None:
    results = {
        "env_runners": {
            "num_module_steps_sampled_lifetime": {"snake": 7, "snake_throughput": {"rate": 3.0}},
            "num_env_steps_sampled_lifetime": 2,
        },
        "learners": {
            "__all_modules__": {"num_module_steps_trained_lifetime": 512},
            "snake": {"num_module_steps_trained_lifetime": 512},
        },
    }
    assert training._counts(results) == (7.0, 2.0, 512.0)
    assert training._counts({}) == (0.0, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.rllib
@pytest.mark.parametrize("name", ["stock", "dqn", "apex-0.25"])
def test_a_short_measurement(name: str) -> None:
    pytest.importorskip("ray", reason="needs the extra rllib")
    seen = training.measure_apart(name, 3.0)
    assert seen.sampling > seen.agent_steps > 0
    # APEX's first updates may be for what was played before they began.
    assert seen.replay_ratio == pytest.approx(training.SETUPS[name].replay_ratio, rel=0.5)
    assert seen.updates > 0
    assert 0 < seen.torch_share < 1
    assert seen.memory > 100
