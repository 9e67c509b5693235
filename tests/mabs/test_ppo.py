"""PPO on our runners: advantages, masks, symmetry, learning, past selves, checkpoints, refusals."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.algorithms import use_custom_network
from battlesnake_rl.mabs.policy import symmetry_transforms
from battlesnake_rl.mabs.policy.policy_loader import inference_weights
from battlesnake_rl.mabs.ppo.ppo import compute_advantages
from sagemaker_rl.runs import checkpoints
from tests.algorithms import built
from tests.mabs.conftest import SMALL, TINY, small_policy

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def ppo(ray_with_games: None) -> Callable[..., Any]:
    """A function that makes a configuration which trains in seconds."""
    return partial(small_policy, "PPO")


def sampled(algorithm: Any, **how: Any) -> Any:
    (rollout,) = algorithm.env_runner.sample(**how)
    return rollout


def slow_advantage(rollout: Any, where: Any, gamma: float, lambda_: float, trust: Any) -> float:
    """Schulman et al. 2016, equation 16, with Espeholt et al. 2018, equation 1: a sum."""
    t, game, seat = where
    total, weight = 0.0, 1.0
    while t < len(rollout.acted):
        over = rollout.terminateds[t, game, seat]
        later = 0.0 if over else rollout.values[t + 1, game, seat]
        error = rollout.rewards[t, game, seat] + gamma * later - rollout.values[t, game, seat]
        weight *= trust[t, game, seat]
        total += weight * error
        if over or rollout.truncateds[t, game, seat]:
            break
        weight *= gamma * lambda_
        t += 1
    return total


@pytest.mark.parametrize("lags", [False, True])
def test_advantages_are_the_sums_that_they_are_defined_as(ppo: Any, lags: bool) -> None:
    with built(ppo(max_turns=12, opponents={"random": 0.3})) as algorithm:
        rollout = sampled(algorithm, num_timesteps=8 * 40)
    random = np.random.default_rng(1)
    rollout.values[:] = random.normal(size=rollout.values.shape)
    trust = random.random(rollout.rewards.shape) if lags else np.ones(rollout.rewards.shape)
    found = compute_advantages(rollout, 0.9, 0.8, trust.astype(np.float32))
    assert (found[~rollout.acted] == 0).all()
    assert rollout.terminateds.any()
    assert rollout.truncateds.any()
    assert 0 < rollout.acted.mean() < 1
    for where in np.argwhere(rollout.acted):
        wanted = slow_advantage(rollout, tuple(where), 0.9, 0.8, trust)
        assert found[tuple(where)] == pytest.approx(wanted, abs=1e-4)
    if not lags:
        np.testing.assert_array_equal(found, compute_advantages(rollout, 0.9, 0.8))


def test_a_rollout_says_what_was_played(ppo: Any) -> None:
    with built(ppo(opponents={"random": 0.3})) as algorithm:
        runner = algorithm.env_runner
        rollout = sampled(algorithm)
        assert rollout.num_agent_steps == rollout.acted.sum() == len(rollout.columns["obs"])
        logits, values = runner.module["default_policy"].evaluate(rollout.columns["obs"])
        logits = np.where(rollout.columns["action_mask"], logits, -np.inf)
        chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        played = chances[np.arange(len(chances)), rollout.columns["actions"]]
        np.testing.assert_allclose(np.exp(rollout.columns["old_log_probs"]), played, rtol=2e-2)
        np.testing.assert_allclose(rollout.values[:-1][rollout.acted], values, atol=2e-2)
        greedy = sampled(algorithm, explore=False)
        logits = np.where(
            greedy.columns["action_mask"],
            runner.module["default_policy"].evaluate(greedy.columns["obs"])[0],
            -np.inf,
        )
        best = logits[np.arange(len(logits)), greedy.columns["actions"]]
        np.testing.assert_allclose(best, logits.max(-1), atol=1e-2)


def test_no_forbidden_move_is_made_or_wished_for(ppo: Any) -> None:
    with built(ppo()) as algorithm:
        rollout = sampled(algorithm)
        assert not rollout.columns["action_mask"].all()
        assert rollout.columns["action_mask"][
            np.arange(len(rollout.columns["actions"])), rollout.columns["actions"]
        ].all()
        learner = algorithm.learner_group._learner
        outputs = learner._forward(learner._to_batch(rollout))
        chances = outputs["action_dist_inputs"].softmax(-1).detach().numpy()
        assert (chances[~rollout.columns["action_mask"]] == 0).all()
        assert (chances[rollout.columns["action_mask"]] > 0).all()


def test_a_turned_board_is_played_as_it_lies(ppo: Any) -> None:
    """A snake that plays by what it sees makes, in the game, the moves that it would unturned."""
    with built(ppo(observation="territory", action_mask="fatal")) as algorithm:
        runner = algorithm.env_runner
        runner.sample()
        seen = runner._position[2]
        observations, mask = runner._position[0][seen].copy(), runner._position[1][seen].copy()
        for way in range(8):
            values = np.zeros(seen.shape, np.float32)
            ways = np.full(len(seen), way)
            frames, masks, moves, _, actions = runner._sample_actions(values, ways, ways < 0)
            assert len(moves) == seen.sum()
            columns = {"obs": observations, "new_obs": observations, "mask": mask}
            turned = symmetry_transforms.transform_batch(
                columns | {"actions": actions[seen]}, way, ["mask"], runner.env.observation
            )
            np.testing.assert_array_equal(frames, turned["obs"])
            np.testing.assert_array_equal(masks, turned["mask"])
            np.testing.assert_array_equal(moves, turned["actions"])
            assert mask[np.arange(len(mask)), actions[seen]].all()


@pytest.mark.parametrize("name", ["PPO", "RECURRENT_PPO"])
def test_it_learns_in_seconds_to_turn_to_where_it_is_rewarded(
    ray_with_games: None, name: str
) -> None:
    """Alone on a small board, to eat is all that counts."""
    alone = {"num_snakes": 1, "ruleset": "solo", "width": 5, "height": 5}
    config = small_policy(name, **alone, rewards={"ate_food": 1})
    config.env_runners(num_envs_per_env_runner=64, rollout_fragment_length=16)
    config.training(lr=3e-3, gamma=0.9, minibatch_size=256, symmetry_augmentation=name == "PPO")
    with built(config) as algorithm:
        returns = [algorithm.train()["env_runners"]["episode_return_mean"] for _ in range(40)]
    assert returns[-1] > 1.3 * np.nanmin(returns[:4])


def test_the_policy_that_is_exported_is_the_mean(ppo: Any) -> None:
    with built(ppo()) as algorithm:
        for _ in range(3):
            algorithm.train()
        learner = algorithm.learner_group._learner
        module = learner.module["default_policy"]
        assert int(module.mean.n_averaged) == 3
        weights = algorithm._get_export_weights()
        mean = module.mean.module.policy.weight
        np.testing.assert_array_equal(weights["policy.weight"], mean.detach().numpy())
        assert not torch.equal(mean, module.network.policy.weight)
        state = module.get_state()
        played = inference_weights({name: np.asarray(one) for name, one in state.items()})
        assert played.keys() == weights.keys()


@pytest.mark.parametrize("name", ["PPO", "RECURRENT_PPO"])
def test_training_goes_on_where_it_was(ray_with_games: None, tmp_path: Path, name: str) -> None:
    def state(algorithm: Any) -> Any:
        learner = algorithm.learner_group._learner
        weights = learner.module["default_policy"].state_dict()
        optimizer = learner.get_optimizer().state_dict()["state"]
        means = {key: one["exp_avg"].numpy() for key, one in optimizer.items()}
        past = algorithm.env_runner.get_state()["past_selves"]["numbers"]
        numbers = {weight: one.numpy() for weight, one in weights.items()}
        return numbers, means, past, algorithm.num_env_steps_sampled

    config = small_policy(name, opponents={"past": 0.3})
    with built(config) as algorithm:
        for _ in range(3):
            algorithm.train()
        path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
        before = state(algorithm)
    changed = config.copy(copy_frozen=False).training(lr=2e-3, adam_epsilon=1e-7)
    with built(changed) as again:
        checkpoints.restore_algorithm(again, changed, Path(path), before[-1])
        np.testing.assert_equal(state(again), before)
        (group,) = again.learner_group._learner.get_optimizer().param_groups
        assert (group["lr"], group["eps"]) == (2e-3, 1e-7)
        played = again.env_runner.module["default_policy"].network.policy.weight
        trained = again.learner_group._learner.module["default_policy"].network.policy.weight
        assert torch.equal(played, trained)
        assert again.train()["env_runners"]["num_env_steps_sampled_lifetime"] > before[-1]


def test_rllibs_ppo_resumes_with_its_coefficients(ray_with_games: None, tmp_path: Path) -> None:
    def state(algorithm: Any) -> tuple[float, float]:
        learner = algorithm.learner_group._learner
        entropy = learner.entropy_coeff_schedulers_per_module["snake"].get_current_value()
        return float(entropy), float(learner.curr_kl_coeffs_per_module["snake"])

    config = algorithms.configure("RLLIB_PPO", SMALL)
    config.env_runners(num_env_runners=0).rl_module(model_config=TINY)
    config.training(
        train_batch_size_per_learner=64, minibatch_size=32, entropy_coeff=[[0, 0.1], [1000, 0.0]]
    )
    with built(config) as algorithm:
        algorithm.train()
        path = checkpoints.CheckpointFolder(tmp_path).save(algorithm, {})
        env_steps = algorithm.metrics.peek(("env_runners", "num_env_steps_sampled_lifetime"))
        before = state(algorithm)
    assert before[0] < 0.1
    assert before[1] != config.kl_coeff
    with built(config) as again:
        checkpoints.restore_algorithm(again, config, path, env_steps)
        assert state(again) == before


@pytest.mark.parametrize("async_sampling", [False, True])
def test_several_runners_play_for_one_learner(ppo: Any, async_sampling: bool) -> None:
    config = ppo().env_runners(num_env_runners=2).training(async_sampling=async_sampling)
    config.training(min_train_probability=1)
    config.reporting(min_sample_timesteps_per_iteration=300)
    with built(config) as algorithm:
        for _ in range(3):
            results = algorithm.train()
        learned = results["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
        sampled = results["env_runners"]["num_agent_steps_sampled_lifetime"]["default_agent"]
        assert learned == 2 * sampled > 0
        numbers = algorithm.env_runner_group.foreach_env_runner(
            lambda runner: runner._weights_seq_no, local_env_runner=False
        )
        assert len(numbers) == 2
        assert min(numbers) > 0


def test_the_weights_of_sampled_moves_add_up_to_all_moves(ppo: Any) -> None:
    with built(ppo()) as algorithm:
        learner = algorithm.learner_group._learner
        learner.learn([sampled(algorithm)], 0)
        seen: list[Any] = []
        learner._update_weights = seen.append
        rollout = sampled(algorithm)
        for _ in range(100):
            learner.learn([rollout], 0)
    batch = {name: torch.cat([one[name] for one in seen]) for name in seen[0]}
    weights, sizes = batch["move_weights"], batch["advantages"].abs()
    torch.testing.assert_close(1 / weights, sizes.clamp(0.2, 1))
    passes = 200
    moves = passes * rollout.num_agent_steps
    assert len(weights) < 0.8 * moves
    assert weights.sum().item() == pytest.approx(moves, rel=0.05)
    total = (weights * batch["advantages"]).sum().item()
    assert total == pytest.approx(0, abs=0.03 * moves)
    surprising = sizes > 1
    assert surprising.sum().item() % passes == 0
    assert surprising.any()


@pytest.mark.parametrize("name", ["PPO", "RECURRENT_PPO"])
def test_a_single_game_has_all_symmetries(
    ray_with_games: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config = algorithms.configure(name, SMALL | {"max_turns": 2})
    config.env_runners(num_envs_per_env_runner=1, rollout_fragment_length=1)
    config.training(symmetry_augmentation=True)
    runner = config.env_runner_cls(config=config, worker_index=0)
    evaluate, seen = runner._evaluate, set()

    def evaluate_and_note(frames: Any, at: Any, symmetry: Any) -> Any:
        seen.update(symmetry.tolist())
        return evaluate(frames, at, symmetry)

    monkeypatch.setattr(runner, "_evaluate", evaluate_and_note)
    for _ in range(200):  # fewer could miss a symmetry by chance
        runner.sample()
    assert seen == set(range(8))


@pytest.mark.parametrize("name", ["PPO", "RECURRENT_PPO"])
def test_fragments_with_one_move_or_none_are_no_obstacle(ray_with_games: None, name: str) -> None:
    """In a single game, the opponents play on after the learner's snake is eliminated."""
    games = SMALL | {"num_snakes": 4, "width": 7, "height": 7, "opponents": {"hungry": 0.99}}
    config = algorithms.configure(name, games).debugging(seed=7, log_level="ERROR")
    config.env_runners(num_envs_per_env_runner=1, rollout_fragment_length=1)
    config.reporting(min_time_s_per_iteration=0).training(num_epochs=1)
    config.ladder_cpu_fraction = 0.0
    moves = []
    with built(config) as algorithm:
        sample = algorithm.env_runner.sample

        def sample_and_count(**how: Any) -> Any:
            (rollout,) = sample(**how)
            moves.append(rollout.num_agent_steps)
            return [rollout]

        algorithm.env_runner.sample = sample_and_count
        for _ in range(20):
            algorithm.train()
        values = algorithm.learner_group._learner.module["default_policy"].parameters()
        assert all(torch.isfinite(value).all() for value in values)
    assert {0, 1} <= set(moves)


def test_of_moves_by_older_weights_the_learner_takes_its_own_view(ppo: Any) -> None:
    with built(ppo()) as algorithm:
        rollout = sampled(algorithm)
        learner = algorithm.learner_group._learner
        fresh = learner._to_batch(rollout)
        for _ in range(5):
            learner.learn([rollout], 0)
        columns = learner._to_batch(rollout)
        again = learner._forward(columns)
        np.testing.assert_allclose(
            rollout.values[:-1][rollout.acted], again["vf_preds"].detach().numpy(), atol=1e-2
        )
        assert not torch.allclose(fresh["old_log_probs"], columns["old_log_probs"], atol=1e-3)
        change = columns["old_log_probs"] - fresh["old_log_probs"]
        assert (change > 0).any()
        assert (change < 0).any()


OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, actions):
        super().__init__()
        self.all = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], actions))

    def forward(self, planes):
        return self.all(planes.float() / 255)
"""


def test_a_network_of_your_own_is_policy_and_value(ppo: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    config = ppo()
    config.rl_module(model_config=type(config)().model_config)
    use_custom_network(config, f"{tmp_path / 'own.py'}:Net")
    with built(config) as algorithm:
        algorithm.train()
        module = algorithm.learner_group._learner.module["default_policy"]
        assert module.value.all[1].out_features == 1
        values = algorithm._policy_from_weights(algorithm._get_export_weights())
        assert values(np.zeros((2, *module.observation_space.shape), np.uint8)).shape == (2, 4)
