"""PPO on arrays: what its runner returns, that it learns what pays, and that it goes on."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.procgen_rllib.episodes import rewards_and_ends
from tests.procgen_rllib.test_launcher import train
from tests.procgen_rllib.test_procgen_ppo import GAMMA, normalized
from tests.progress import rows

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

array_ppo = pytest.importorskip("battlesnake_rl.procgen.array_ppo", reason="needs the extra rllib")


def configured(**settings: Any) -> Any:
    """A validated configuration on three levels of a game whose episodes are short."""
    from battlesnake_rl.procgen.train_procgen import ProcgenHyperparameters, configure

    config = configure(
        ProcgenHyperparameters(
            algorithm="ArrayPPO",
            custom_model="small_cnn",
            env_config={"env_name": "bossfight", "num_levels": 3},
        )
    )
    config.learners(num_gpus_per_learner=0)
    for name, value in settings.items():
        assert hasattr(config, name)
        setattr(config, name, value)
    config.seed = 3
    config.validate()
    return config


def test_turns_are_normalized_as_by_another_library() -> None:
    from battlesnake_rl.procgen.reward_scale import RewardNormalizer

    rewards, ends = rewards_and_ends(games=5, turns=60)
    normalizer = RewardNormalizer(GAMMA, clip=1.5)
    everywhere = np.ones(5, np.bool_)
    ours = [
        normalizer.of_turn(*turn) for turn in zip(rewards, [everywhere] * 60, ends, strict=True)
    ]
    np.testing.assert_allclose(ours, normalized(rewards, ends, clip=1.5), rtol=1e-5)


def test_a_turn_that_only_shows_the_next_level_is_not_learned_from() -> None:
    runner = array_ppo.ArrayRunner(
        worker_index=0,
        config=configured(num_envs_per_env_runner=8, rollout_fragment_length=150),
    )
    (rollout,) = runner.sample()
    ended = (rollout.terminateds | rollout.truncateds)[..., 0]
    assert ended.any()
    np.testing.assert_array_equal(rollout.acted[1:, :, 0], ~ended[:-1])
    moves = int(rollout.acted.sum())
    assert rollout.frames.shape == (moves, 64, 64, 3)
    assert rollout.action_mask.shape == (moves, 15)
    assert rollout.action_mask.all()
    assert len(rollout.actions) == len(rollout.log_chances) == moves
    assert not rollout.rewards[~rollout.acted].any()
    assert runner._scale.state()["count"] == pytest.approx(moves, abs=1)
    assert runner.get_metrics()["num_episodes"].peek() == ended.sum()


class DarkOrBright(array_ppo.OneSeat):  # type: ignore[misc, name-defined]
    """On dark frames one action pays, on bright ones another; an episode is eight turns."""

    PAYS = np.array([3, 7])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._draw, self._turn = np.random.default_rng(seed), 0
        return self._show(), {}

    def _show(self) -> np.ndarray:
        self._bright = self._draw.integers(2, size=self.num_envs)
        shades = np.array([40, 220], np.uint8)[self._bright]
        return np.broadcast_to(shades[:, None, None, None], (self.num_envs, 64, 64, 3)).copy()

    def step(self, actions: Any) -> Any:
        # Every ninth step shows the next level alone.
        shown = self._turn % 9 == 8
        paid = (actions == self.PAYS[self._bright]).astype(np.float32) * (not shown)
        over = np.full(self.num_envs, self._turn % 9 == 7)
        self._turn += 1
        return self._show(), paid, over, np.zeros_like(over), {}


def test_what_pays_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(array_ppo, "OneSeat", DarkOrBright)
    torch.manual_seed(1)
    config = configured(
        num_envs_per_env_runner=32, rollout_fragment_length=18, minibatch_size=128, lr=2e-3
    )
    runner = array_ppo.ArrayRunner(config=config, worker_index=0)
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


def test_a_run_goes_on_where_it_was(ray_session: None, tmp_path: Path) -> None:
    arguments = [
        *("-f", "easy-small", "--env-name", "bossfight", "--seed", "3"),
        *("--rl.training.config.num_envs_per_env_runner", "8"),
        *("--rl.training.config.evaluation_interval", "2"),
        *("--rl.training.config.evaluation_duration", "3"),
    ]
    assert train(tmp_path, *arguments, "--timesteps", "400") == 0
    run = tmp_path / "easy-small-bossfight"
    (first,) = (run / "checkpoints").glob("checkpoint_*")
    scale = pickle.loads((first / "env_runner" / "state.pkl").read_bytes())
    played = scale["reward_normalization"]["count"]
    assert played == pytest.approx(float(rows(run)[-1]["env_steps"]), abs=1)
    assert train(tmp_path, *arguments, "--timesteps", "900") == 0
    table = rows(run)
    assert [row["training_iteration"] for row in table] == ["1", "2"]
    assert float(table[0]["env_steps"]) < float(table[1]["env_steps"]) <= 1024
    assert [row["test_reward_mean"] != "" for row in table] == [False, True]
    assert float(table[1]["episode_len_mean"]) > 0
    last = sorted((run / "checkpoints").glob("checkpoint_*"))[-1]
    state = pickle.loads((last / "env_runner" / "state.pkl").read_bytes())
    total = state["reward_normalization"]["count"]
    assert total == pytest.approx(float(table[1]["env_steps"]), abs=1)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("symmetries", True, "symmetries is not used"),
        ("num_env_runners", 2, "num_workers is 2, but ArrayPPO plays all games in one process"),
        ("callbacks_on_episode_end", print, "ArrayPPO has no episode objects"),
        ("vf_clip_param", 0.2, "unknown|no setting|setting"),
    ],
)
def test_what_would_do_nothing_is_refused(setting: str, value: Any, message: str) -> None:
    config = configured()
    setattr(config, setting, value)
    with pytest.raises(ValueError, match=message):
        config.validate()
