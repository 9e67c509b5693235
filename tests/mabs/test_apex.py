"""APEX: keeps the ratio, survives the death of a runner and of a replay shard."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import ray

from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.base import batched_algorithm
from battlesnake_rl.mabs.dqn.apex import APEXConfig
from sagemaker_rl.runs.checkpoints import CheckpointError
from tests.algorithms import built
from tests.mabs.conftest import small

pytestmark = pytest.mark.filterwarnings("default")


def totals(results: dict[str, Any]) -> tuple[float, float]:
    """Agent steps sampled and transitions trained on so far."""
    sampled = results["env_runners"]["num_agent_steps_sampled_lifetime"]["default_agent"]
    learner = results.get("learners", {}).get("default_policy", {})
    return sampled, learner.get("num_module_steps_trained_lifetime", 0.0)


@pytest.fixture(scope="module")
def algorithm(ray_with_games: None) -> Iterator[Any]:
    """Two runners and two shards, which start in seconds."""
    config = small("APEX").training(
        training_intensity=2.0, num_replay_shards=2, broadcast_interval=2
    )
    with built(config.env_runners(num_env_runners=2)) as one:
        yield one


def test_runners_and_learner_keep_each_others_pace(algorithm: Any) -> None:
    first = totals(algorithm.train())
    for _ in range(3):
        results = algorithm.train()
    sampled, trained = totals(results)
    ratio = (trained - first[1]) / (sampled - first[0])
    assert ratio == pytest.approx(2.0, rel=0.25)
    assert results["env_runners"]["num_episodes"] > 0
    assert results["replay_buffer"]["num_transitions"] > 0

    shards = algorithm.replay_buffer.foreach_shard("stats")
    assert len(shards) == 2
    assert all(shard["num_transitions"] > 0 for shard in shards)
    # Weights reach the runners: their number is not far behind the learner's.
    numbers = algorithm.env_runner_group.foreach_env_runner(
        lambda runner: runner.get_state()["weights_seq_no"], local_env_runner=False
    )
    updates = trained / 32
    assert all(updates / 2 < number <= updates for number in numbers)
    # Together the games of both stand on every rung of the ladder.
    rungs = np.concatenate(
        algorithm.env_runner_group.foreach_env_runner(
            lambda runner: runner._get_epsilons(), local_env_runner=False
        )
    )
    expected = 0.4 ** (1 + 7.0 * np.arange(8) / 7)
    np.testing.assert_allclose(np.sort(rungs), np.sort(expected))


def test_an_iteration_waits_for_no_runner(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """RLlib would ask each for its connectors, which runners that play for seconds answer late."""
    asked = MagicMock()
    monkeypatch.setattr(algorithm.env_runner_group, "foreach_env_runner", asked)
    algorithm.train()
    asked.assert_not_called()


def test_lost_runners_are_asked_now_and_then(
    algorithm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question may last a second, and there are many steps in one."""
    now = 0.0
    algorithm._last_restore_at = -batched_algorithm.HEALTH_CHECK_INTERVAL_S
    monkeypatch.setattr(batched_algorithm, "time", SimpleNamespace(monotonic=lambda: now))
    group = algorithm.env_runner_group
    probe = group.probe_unhealthy_env_runners
    group.probe_unhealthy_env_runners = MagicMock(return_value=[])
    group._worker_manager.set_actor_state(2, healthy=False)
    asked = []
    for now in (0.0, 1.0, batched_algorithm.HEALTH_CHECK_INTERVAL_S):  # noqa: B007
        assert algorithm.restore_env_runners(group) == []
        asked.append(group.probe_unhealthy_env_runners.call_count)
    assert asked == [1, 1, 2]
    # It answers to something else meanwhile, and gets the state of the others all the same.
    group._worker_manager.set_actor_state(2, healthy=True)
    group.probe_unhealthy_env_runners = probe
    assert algorithm.restore_env_runners(group) == [2]


@pytest.mark.slow
def test_training_goes_on_when_a_runner_and_a_shard_die(small_config: Any) -> None:
    config = small_config("APEX").training(num_replay_shards=2)
    config.env_runners(num_env_runners=2).fault_tolerance(restart_failed_env_runners=True)
    with built(config) as algorithm:
        for _ in range(2):
            before = totals(algorithm.train())
        runners = algorithm.env_runner_group._worker_manager
        ray.kill(runners.actors()[1], no_restart=False)
        ray.kill(algorithm.replay_buffer.shards[0], no_restart=False)
        deadline = time.monotonic() + 3000
        while True:
            after = totals(algorithm.train())
            everybody = (
                runners.num_healthy_actors() == 2
                and len(algorithm.replay_buffer.foreach_shard("stats")) == 2
            )
            refilled = all(
                s["num_transitions"] for s in algorithm.replay_buffer.foreach_shard("stats")
            )
            if everybody and refilled:
                break
            assert time.monotonic() < deadline, "not everybody came back"
        assert after[0] > before[0]
        assert after[1] > before[1]
        # The runner that came back plays with the learner's weights, not with fresh ones.
        deadline = time.monotonic() + 300
        while True:
            algorithm.train()
            numbers = algorithm.env_runner_group.foreach_env_runner(
                lambda runner: runner.get_state()["weights_seq_no"], local_env_runner=False
            )
            if min(numbers) > before[1] / 32:
                break
            assert time.monotonic() < deadline, numbers


@pytest.mark.slow
def test_a_bug_in_a_runner_is_not_taken_for_its_death(small_config: Any) -> None:
    with built(small_config("APEX")) as algorithm:
        algorithm.train()
        algorithm.env_runner_group.foreach_env_runner(
            lambda runner: setattr(runner, "_position", None), local_env_runner=False
        )
        # Two requests were on their way before the bug.
        with pytest.raises(Exception, match="NoneType"):
            [algorithm.train() for _ in range(5)]


@pytest.mark.slow
def test_a_checkpoint_can_hold_the_shards(small_config: Any, tmp_path: Any) -> None:
    config = small_config("APEX").training(store_buffer_in_checkpoints=True, num_replay_shards=2)
    algorithm = config.build_algo()
    algorithm.train()
    algorithm.save_to_path(str(tmp_path / "checkpoint"))
    stored = algorithm.replay_buffer.foreach_shard("stats")
    algorithm.stop()
    with built(config.copy(copy_frozen=False)) as copy:
        copy.restore_from_path(str(tmp_path / "checkpoint"))
        held = copy.replay_buffer.foreach_shard("stats")
        assert [shard["num_transitions"] for shard in held] == pytest.approx(
            [shard["num_transitions"] for shard in stored], abs=200
        )
        assert all(shard["num_transitions"] for shard in held)
        copy.train()
        with pytest.raises(CheckpointError, match=r"num_replay_shards is 2.* 1 shards; set .* 1$"):
            copy.replay_buffer.set_state(copy.replay_buffer.get_state()[:1])


def test_shards_are_as_many_as_runners_are_worth_and_room_allows() -> None:
    config = APEXConfig().environment(env_config={"num_snakes": 5}).env_runners(num_env_runners=100)
    fragment = 17 * 64 * 5
    assert config.effective_num_shards == 200_000 // (3 * fragment)
    config.training(replay_buffer_config={"capacity": 10**8})
    assert config.effective_num_shards == 13
    assert config.training(num_replay_shards=7).effective_num_shards == 7


def test_a_shard_that_cannot_hold_a_fragment_is_refused_before_anything_starts() -> None:
    config = algorithms.configure("APEX", {"num_snakes": 5})  # 64 games, 16 turns and what follows
    config.training(replay_buffer_config={"capacity": 4 * 5440}, num_replay_shards=4).validate()
    config.training(num_replay_shards=5)
    with pytest.raises(ValueError, match=r"21760 \(4352 .* 5440.* num_replay_shards$"):
        config.validate()
