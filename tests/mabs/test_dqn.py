"""The DQN algorithm: it updates what it should, repeats itself, and survives a checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.algorithms import built

pytestmark = pytest.mark.filterwarnings("default")

Weights = dict[str, np.ndarray]


def weights(algorithm: Any, of: str = "network") -> Weights:
    """Those of the learner's "network", "target_network" or "mean"."""
    state = algorithm.learner_group.get_state()["learner"]["rl_module"]["default_policy"]
    prefix = f"{of}."
    return {k.removeprefix(prefix): np.array(v) for k, v in state.items() if k.startswith(prefix)}


def assert_same(one: Weights, other: Weights) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def differ(one: Weights, other: Weights) -> bool:
    return any((one[name] != other[name]).any() for name in one)


def test_training_updates_at_the_wanted_ratio_and_reports_games(small_config: Any) -> None:
    with built(small_config("DQN").training(training_intensity=2.0)) as algorithm:
        before = weights(algorithm)
        results = [algorithm.train() for _ in range(3)][-1]
        assert differ(before, weights(algorithm))
        assert differ(weights(algorithm), weights(algorithm, "target_network"))
        assert differ(before, weights(algorithm, "target_network"))

        runner = results["env_runners"]
        sampled = runner["num_agent_steps_sampled_lifetime"]["default_agent"]
        trained = results["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
        # Everything sampled since learning began is trained on twice, but for a started batch.
        begun = 64 / (4 * 8) * 4 * 8 * 2
        assert 2 * (sampled - begun) - 32 <= trained <= 2 * sampled
        assert runner["num_episodes"] > 0
        assert 0 < runner["episode_return_mean"] <= runner["episode_len_mean"] <= 30
        assert runner["Longest_snake"] >= 3
        deaths = runner["Snake_was_eaten"] + runner["Snake_hit_body"] + runner["Snake_hit_wall"]
        assert 0 < deaths <= 2
        assert not [key for key in runner if key.endswith("_sum")]
        assert results["replay_buffer"]["num_transitions"] == min(
            sampled, results["replay_buffer"]["num_transitions"]
        )

        # The runner plays with the weights that were just learned.
        playing = algorithm.env_runner.get_state()["rl_module"]["default_policy"]
        assert_same({k.removeprefix("network."): v for k, v in playing.items()}, weights(algorithm))


@pytest.mark.parametrize("remote_runners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_same_seed_same_weights(small_config: Any, remote_runners: int) -> None:
    finals = []
    for seed in (7, 7, 8):
        config = small_config("DQN").env_runners(num_env_runners=remote_runners)
        config = config.training(symmetry_augmentation=True)
        algorithm = config.debugging(seed=seed).build_algo()
        algorithm.train()
        algorithm.train()
        finals.append(weights(algorithm))
        algorithm.stop()
    assert_same(finals[0], finals[1])
    assert differ(finals[0], finals[2])


@pytest.mark.parametrize("with_replay", [True, False])
def test_a_checkpoint_holds_everything(
    small_config: Any, tmp_path: Path, with_replay: bool
) -> None:
    config = small_config("DQN").training(
        store_buffer_in_checkpoints=with_replay, epsilon=[(0, 1.0), (500, 0.1)]
    )
    algorithm = config.build_algo()
    for _ in range(2):
        algorithm.train()
    algorithm._training_debt += 100  # The learner of APEX may owe several batches.
    algorithm.save_to_path(str(tmp_path / "checkpoint"))
    steps = algorithm.num_env_steps_sampled
    epsilon = algorithm.env_runner._get_epsilons()
    online, target = weights(algorithm), weights(algorithm, "target_network")
    mean = weights(algorithm, "mean")
    target_updates = algorithm.get_state()["last_target_updates"]
    rows = algorithm.replay_buffer.stats()
    algorithm.stop()

    with built(config.copy(copy_frozen=False)) as copy:
        copy.restore_from_path(str(tmp_path / "checkpoint"))
        assert copy.training_iteration == 2
        assert copy.num_env_steps_sampled == steps
        np.testing.assert_allclose(copy.env_runner._get_epsilons(), epsilon)
        assert 0.1 < epsilon[0] < 1
        assert_same(weights(copy), online)
        assert_same(weights(copy, "target_network"), target)
        assert_same(weights(copy, "mean"), mean)
        assert mean["n_averaged"] > 10
        assert copy.get_state()["last_target_updates"] == target_updates
        assert target_updates["default_policy"] > 64
        assert (copy.replay_buffer.stats() == rows) == with_replay
        optimizer = copy.learner_group.get_state()["learner"]["optimizer"]
        assert next(iter(optimizer.values()))["state"]["state"][0]["step"] > 0

        # Without the old replay the first games only fill the new one.
        copy.training_step()
        assert differ(weights(copy), online) == with_replay
        results = copy.train()
        assert differ(weights(copy), online)
        assert results["training_iteration"] == 3
        assert results["env_runners"]["num_env_steps_sampled_lifetime"] > steps


def test_rllib_can_evaluate_with_our_runner(small_config: Any) -> None:
    opponents = {"past": 0.3, "random": 0.2}
    config = small_config("DQN", opponents=opponents).evaluation(
        evaluation_interval=1, evaluation_duration=10, evaluation_num_env_runners=0
    )
    with built(config) as algorithm:
        results = algorithm.train()["evaluation"]["env_runners"]
        evaluating = algorithm.eval_env_runner
        assert evaluating.config.env_config["opponents"] == {"past": 0.3, "random": 0.2}
        assert evaluating._opponents.occupied.any()
        assert results["num_episodes"] >= 10
        assert results["episode_len_mean"] > 0
