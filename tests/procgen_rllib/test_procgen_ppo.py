"""The published PPO on arrays: its parts against another library or plain numpy; learning."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from battlesnake_rl.procgen.procgen_launcher import (
    ProcgenHyperparameters,
    ProcgenLauncher,
)
from battlesnake_rl.procgen.procgen_ppo import _RewardNormalizer
from sagemaker_rl.runs import checkpoints
from tests.procgen_rllib.test_launcher import train
from tests.progress_csv import rows

pytestmark = pytest.mark.filterwarnings("default")

procgen_ppo: Any = importlib.import_module("battlesnake_rl.procgen.procgen_ppo")
GAMMA, LAMBDA, CLIP = 0.9, 0.8, 0.2
SMALL = {"patch": 4, "channels": [16, 32], "blocks": 1, "bfloat16": False}


def configured(**settings: Any) -> Any:
    """Return a validated configuration on three levels of a game with short episodes."""
    config = ProcgenHyperparameters(
        custom_options=SMALL, env_config={"env_name": "bossfight", "num_levels": 3}
    ).build_config()
    config.learners(num_gpus_per_learner=0)
    for name, value in settings.items():
        assert hasattr(config, name)
        setattr(config, name, value)
    config.seed = 3
    config.validate()
    return config


def rollouts_of(rewards: np.ndarray, ends: np.ndarray, games: int, seed: int = 0) -> list[Any]:
    """Return rollouts of ``games`` games each from arrays (turns, games)."""
    draw = np.random.default_rng(seed)
    acted = ~np.vstack([np.zeros_like(ends[:1]), ends[:-1]])
    made = []
    for first in range(0, rewards.shape[1], games):
        played = acted[:, first : first + games]
        moves = int(played.sum())
        shape = *played.shape, 1
        made.append(
            procgen_ppo.Rollout(
                columns={
                    "obs": draw.integers(0, 256, (moves, 64, 64, 3), dtype=np.uint8),
                    "action_mask": np.ones((moves, 15), np.bool_),
                    "actions": draw.integers(0, 15, moves),
                    "old_log_probs": np.full(moves, -np.log(15), np.float32),
                },
                acted=played[..., None],
                values=draw.normal(0, 1, (len(played) + 1, games, 1)).astype(np.float32),
                rewards=(rewards[:, first : first + games, None] * played[..., None]),
                terminateds=ends[:, first : first + games, None],
                truncateds=np.zeros(shape, np.bool_),
                weights_seq_no=0,
            )
        )
    return made


def rewards_and_ends(games: int, turns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rewards of very different sizes and episode ends, both (turns, games)."""
    draw = np.random.default_rng(3)
    rewards = draw.normal(0, 1, (turns, games)) * draw.choice([0, 0.01, 30], (turns, games))
    return rewards, draw.random((turns, games)) < 0.15


def normalized(rewards: np.ndarray, ends: np.ndarray, clip: float) -> np.ndarray:
    """Return rewards normalized by another library's VecNormalize."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="needs the trainers")
    turns, games = rewards.shape

    class Played(vec_env.DummyVecEnv):  # type: ignore[misc, name-defined]
        """Games with given rewards."""

        def __init__(self) -> None:
            vec_env.VecEnv.__init__(self, games, Box(0, 1, (1,)), Discrete(2))
            self.turn, self.render_mode = -1, None

        def reset(self) -> np.ndarray:
            return np.zeros((games, 1), np.float32)

        def step_async(self, actions: np.ndarray) -> None:
            self.turn += 1

        def step_wait(self) -> Any:
            return self.reset(), rewards[self.turn], ends[self.turn], [{}] * games

    theirs = vec_env.VecNormalize(Played(), norm_obs=False, gamma=GAMMA, clip_reward=clip)
    theirs.reset()
    return np.array([theirs.step(np.zeros(games))[1] for _ in range(turns)])


def test_rewards_are_normalized_as_by_another_library() -> None:
    rewards, ends = rewards_and_ends(games=6, turns=60)
    expected = normalized(rewards, ends, clip=1.5)
    assert (np.abs(expected) == 1.5).any()
    normalizer, everywhere = _RewardNormalizer(GAMMA, clip=1.5), np.ones((60, 6), np.bool_)
    # In three iterations, with two env runners of three games each.
    for turns in (slice(0, 25), slice(25, 26), slice(26, 60)):
        rollouts = rollouts_of(rewards[turns], ends[turns], games=3)
        for one, those in zip(rollouts, (slice(0, 3), slice(3, 6)), strict=True):
            one.acted, one.rewards = everywhere[turns, those, None], rewards[turns, those, None]
        normalizer.normalize_rollouts(rollouts)
        scaled = np.concatenate([one.rewards for one in rollouts], axis=1)[..., 0]
        np.testing.assert_allclose(scaled, expected[turns], rtol=1e-5)


def test_a_normalizer_goes_on_where_it_was() -> None:
    rewards, ends = rewards_and_ends(games=3, turns=20)
    ends[9] = True  # all games restart, as in a resumed run
    one, other = _RewardNormalizer(GAMMA, 10.0), _RewardNormalizer(GAMMA, 10.0)
    one.normalize_rollouts(rollouts_of(rewards[:10], ends[:10], games=3))
    other.set_moments(one.get_moments())
    (ours,), (theirs,) = (rollouts_of(rewards[10:], ends[10:], games=3) for _ in range(2))
    one.normalize_rollouts([ours])
    other.normalize_rollouts([theirs])
    np.testing.assert_array_equal(ours.rewards, theirs.rewards)


def test_the_value_loss_is_that_of_numpy() -> None:
    values, old, targets = np.random.default_rng(1).normal(0, 1, (3, 200))
    expected = [
        max((v - t) ** 2, (o + min(max(v - o, -CLIP), CLIP) - t) ** 2)
        for v, o, t in zip(values, old, targets, strict=True)
    ]
    tensors = [torch.from_numpy(one) for one in (values, old, targets)]
    assert procgen_ppo._clipped_value_losses(*tensors, CLIP).mean().item() == pytest.approx(
        np.mean(expected)
    )
    # Some values are clipped, and some are not.
    assert 0 < np.mean(np.abs(values - old) > CLIP) < 1


def learner_of(config: Any) -> Any:
    spaces: Any = (Box(0, 255, (64, 64, 3), np.uint8), Discrete(15))
    return config.build_learner(spaces={"default_policy": spaces})


def test_a_minibatch_is_what_numpy_makes_of_the_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(
        configured(gamma=GAMMA, lambda_=LAMBDA, minibatch_size=6, num_epochs=2, reward_clip=1.5)
    )
    rewards, ends = rewards_and_ends(games=4, turns=9)
    ends[3, 1] = True
    rollouts = rollouts_of(rewards, ends, games=2)
    expected = {}
    for one, paid in zip(
        rollouts_of(rewards, ends, games=2), expected_rewards(rewards, ends), strict=True
    ):
        following = np.zeros(2)
        rows = dict(
            zip(map(tuple, np.argwhere(one.acted[..., 0])), one.columns["obs"], strict=True)
        )
        for turn in reversed(range(9)):
            value, later, lives = one.values[turn, :, 0], one.values[turn + 1, :, 0], ~ends_of(one)
            wrong = paid[turn] + GAMMA * later * lives[turn] - value
            following = (wrong + GAMMA * LAMBDA * following * lives[turn]) * one.acted[turn, :, 0]
            for game in np.flatnonzero(one.acted[turn, :, 0]):
                expected[rows[turn, game].tobytes()] = following[game] + value[game], value[game]
    batches: list[Any] = []
    plain = procgen_ppo.PPOLearner.compute_loss_for_module

    def seen(self: Any, *, batch: Any, **kwargs: Any) -> Any:
        batches.append(batch)
        return plain(self, batch=batch, **kwargs)

    monkeypatch.setattr(procgen_ppo.PPOLearner, "compute_loss_for_module", seen)
    learner.learn(rollouts, 0)
    moves = len(expected)
    assert len(batches) == 2 * round(moves / 6)
    assert sum(len(batch["advantages"]) for batch in batches) == 2 * moves
    for batch in batches:
        np.testing.assert_allclose(batch["advantages"].mean().item(), 0, atol=1e-5)
        np.testing.assert_allclose(batch["advantages"].std(unbiased=False).item(), 1, atol=1e-4)
        for row, frame in enumerate(batch["obs"]):
            target, value = expected[frame.numpy().tobytes()]
            assert batch["value_targets"][row].item() == pytest.approx(target, abs=1e-5)
            assert batch["vf_preds"][row].item() == pytest.approx(value, abs=1e-5)
    (optimizer,) = learner._optimizer_parameters
    assert optimizer.defaults["eps"] == 1e-5
    state = learner.get_state()["reward_normalization"]
    assert state["count"] == pytest.approx(moves, abs=1)
    again = learner_of(configured())
    again.set_state(learner.get_state())
    assert again.get_state()["reward_normalization"] == state


def ends_of(rollout: Any) -> Any:
    return rollout.terminateds[..., 0]


def expected_rewards(rewards: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    """The games are normalized together, in two rollouts of two games."""
    normalizer = _RewardNormalizer(GAMMA, 1.5)
    acted = ~np.vstack([np.zeros_like(ends[:1]), ends[:-1]])
    scaled = np.array(
        [
            normalizer.normalize_turn(*turn)
            for turn in zip(rewards * acted, acted, ends, strict=True)
        ]
    )
    return [scaled[:, :2], scaled[:, 2:]]


def test_a_turn_that_only_shows_the_next_level_is_not_learned_from() -> None:
    runner = procgen_ppo.ProcgenRunner(
        worker_index=0, config=configured(games=8, rollout_fragment_length=150)
    )
    (rollout,) = runner.sample()
    ended = (rollout.terminateds | rollout.truncateds)[..., 0]
    assert ended.any()
    np.testing.assert_array_equal(rollout.acted[1:, :, 0], ~ended[:-1])
    moves = int(rollout.acted.sum())
    assert rollout.columns["obs"].shape == (moves, 64, 64, 3)
    assert rollout.columns["action_mask"].shape == (moves, 15)
    assert rollout.columns["action_mask"].all()
    assert len(rollout.columns["actions"]) == len(rollout.columns["old_log_probs"]) == moves
    assert not rollout.rewards[~rollout.acted].any()
    assert runner.get_metrics()["num_episodes"].peek() == ended.sum()


class DarkOrBright(procgen_ppo.VectorProcgen):  # type: ignore[misc]
    """One action is rewarded on dark frames, another on bright ones; an episode has eight turns."""

    PAYS = np.array([3, 7])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._draw, self._turn = np.random.default_rng(seed), 0
        return self._show(), {}

    def _show(self) -> np.ndarray:
        self._bright = self._draw.integers(2, size=self.num_envs)
        shades = np.array([40, 220], np.uint8)[self._bright]
        return np.broadcast_to(shades[:, None, None, None], (self.num_envs, 64, 64, 3)).copy()

    def step(self, actions: Any) -> Any:
        # Every ninth step only shows the next level.
        shown = self._turn % 9 == 8
        paid = (actions == self.PAYS[self._bright]).astype(np.float32) * (not shown)
        over = np.full(self.num_envs, self._turn % 9 == 7)
        self._turn += 1
        return self._show(), paid, over, np.zeros_like(over), {}


def test_what_pays_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procgen_ppo, "VectorProcgen", DarkOrBright)
    torch.manual_seed(1)
    config = configured(games=32, rollout_fragment_length=18, minibatch_size=128, lr=2e-3)
    runner = procgen_ppo.ProcgenRunner(config=config, worker_index=0)
    learner = config.build_learner(spaces=runner.get_spaces())
    before = after = 0.0
    for iteration in range(30):
        (rollout,) = runner.sample()
        after = float((rollout.rewards[..., 0] > 0).sum() / rollout.acted.sum())
        before = before or after
        if after > 0.6:
            break
        learner.learn([rollout], iteration * 576)
        runner.set_state({"rl_module": learner.module.get_state(), "weights_seq_no": iteration + 1})
    assert before < 0.2
    assert after > 0.6


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_goes_on_where_it_was(ray_session: None, tmp_path: Path, workers: int) -> None:
    arguments = [
        *("-f", "easy-small", "--env-name", "bossfight", "--seed", "3"),
        *("--rl.training.config.games", "8", "--num-env-runners", str(workers)),
        *("--rl.training.config.rollout_fragment_length", "64"),
        *("--rl.training.config.minibatch_size", "128"),
        *("--rl.training.config.lr", "[[0, 5e-4], [1, 1e-4]]"),
        *("--rl.training.config.evaluation_interval", "2"),
        *("--rl.training.config.evaluation_duration", "3"),
    ]
    run = tmp_path / "easy-small-bossfight"
    for timesteps in (400, 900):
        assert train(tmp_path, *arguments, "--env-steps", str(timesteps)) == 0
        table = rows(run)
        last = sorted((run / "checkpoints").glob("checkpoint_*"))[-1]
        state = checkpoints.load_numeric_pickle(last / "learner_group" / "learner" / "state.pkl")
        played = float(table[-1]["env_steps"])
        assert state["reward_normalization"]["count"] == pytest.approx(played, abs=1)
    (optimizer,) = state["optimizer"].values()
    rate = 5e-4 - 4e-4 * float(table[0]["env_steps"]) / 900  # At the start of the iteration.
    assert optimizer["state"]["param_groups"][0]["lr"] == pytest.approx(rate)
    assert [row["training_iteration"] for row in table] == ["1", "2"]
    assert float(table[0]["env_steps"]) < float(table[1]["env_steps"]) <= 1024
    assert [row["test_reward_mean"] != "" for row in table] == [False, True]
    assert float(table[1]["episode_len_mean"]) > 0


@pytest.mark.parametrize(("runners", "each"), [(0, 64), (1, 64), (8, 8), (64, 1)])
def test_runners_share_the_games(runners: int, each: int) -> None:
    config = configured(num_env_runners=runners)
    assert config.num_envs_per_env_runner == each
    assert config.get_rollout_fragment_length() == 256
    # On a cluster, the env runners are counted again.
    config.num_env_runners = 16
    config.validate()
    assert config.num_envs_per_env_runner == 4


@pytest.mark.parametrize(
    ("cpus", "gpus", "learners", "runners"),
    [(4, 0, 0, 0), (16, 0, 0, 8), (16, 1, 0, 0), (16, 1, 1, 8)],
)
def test_beside_the_learners_gpu_its_own_process_plays(
    cpus: int, gpus: int, learners: int, runners: int
) -> None:
    config = configured(num_gpus_per_learner=gpus, num_learners=learners)
    assert ProcgenLauncher().plan_resources(config, cpus).num_env_runners == runners


def test_games_are_the_same_in_several_threads() -> None:
    made = [procgen_ppo.VectorProcgen(8, {}, num_threads=threads) for threads in (1, 2)]
    np.testing.assert_array_equal(*(games.reset(seed=3)[0] for games in made))
    for turn in range(50):
        one, two = (games.step(np.arange(turn, turn + 8) % 15) for games in made)
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("symmetry_augmentation", True, "symmetry_augmentation"),
        ("num_env_runners", 7, r"num_env_runners 7.* 64.* 1.* 2.* 4.* 8.* 16"),
        ("num_envs_per_env_runner", 12, r"num_envs_per_env_runner.* 12"),
        ("callbacks_on_episode_end", print, "ProcgenPPO"),
        ("train_batch_size_per_learner", 256, r"minibatch_size.* rollout_fragment_length"),
    ],
)
def test_what_would_do_nothing_is_refused(setting: str, value: Any, message: str) -> None:
    config = configured()
    setattr(config, setting, value)
    with pytest.raises(ValueError, match=message):
        config.validate()
