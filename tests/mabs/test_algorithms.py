"""RLlib's own algorithms on the plain multi-agent environment."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.algorithms import configure
from battlesnake_rl.mabs.envs.multi_agent_env import BattlesnakeMultiAgentEnv
from battlesnake_rl.mabs.policy import policy_loader
from sagemaker_rl.job.hyperparameters import apply_overrides
from sagemaker_rl.runs import checkpoints
from tests.mabs.conftest import SMALL

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def game(ray_with_games: None) -> Any:
    return BattlesnakeMultiAgentEnv(SMALL | {"num_snakes": 3, "width": 7, "height": 7})


def test_a_model_config_given_whole_keeps_what_it_leaves_out() -> None:
    config = configure("DQN", {})
    before = dict(config.model_config)
    apply_overrides(config, {"model_config": {"channels": [8]}})
    assert before["head_plane"] is not None
    assert config.model_config == before | {"channels": [8]}


def test_a_game_as_rllib_sees_it(game: Any) -> None:
    observations, _ = game.reset(seed=5)
    assert list(observations) == ["snake_0", "snake_1", "snake_2"]
    random = np.random.default_rng(0)
    acting = set(observations)
    for _ in range(40):
        actions = {}
        for agent in acting:
            seen = observations[agent]
            assert game.observation_spaces[agent].contains(seen)
            actions[agent] = int(random.choice(np.flatnonzero(seen["action_mask"])))
        observations, rewards, terminateds, truncateds, _ = game.step(actions)
        # Exactly those that moved hear of it.
        assert set(observations) == set(rewards) == acting
        over = terminateds.pop("__all__") or truncateds.pop("__all__")
        truncateds.pop("__all__", None)
        acting = {a for a in acting if not terminateds[a] and not truncateds[a]}
        assert over == (not acting)
        if over:
            break
    assert over
    again, _ = game.reset(seed=5)
    assert len(again) == 3


def test_a_whole_game_is_cut_at_max_turns(ray_with_games: None) -> None:
    game = BattlesnakeMultiAgentEnv(SMALL | {"num_snakes": 2, "width": 11, "height": 11,
                                             "max_turns": 1})  # fmt: skip
    observations, _ = game.reset(seed=1)
    moves = {agent: int(np.argmax(seen["action_mask"])) for agent, seen in observations.items()}
    last, _, terminateds, truncateds, _ = game.step(moves)
    assert truncateds == {"snake_0": True, "snake_1": True, "__all__": True}
    assert not any(terminateds.values())
    assert all(seen["observations"].any() for seen in last.values())


@pytest.mark.slow
def test_one_policy_for_each_snake_is_a_setting(
    ray_with_games: None, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--runs-dir", str(run_folder), "--rl.training.config.minibatch_size", "32"]
    command += shlex.split("--experiment hill-ppo --num-snakes 2 --board-size 5")
    command += ["--num-env-runners", "0", "--batch-size", "64"]
    assert main([*command, "--num-iters", "1"]) == 0
    newest = checkpoints.find_checkpoint(run_folder / "hill-ppo")
    modules = newest / "learner_group" / "learner" / "rl_module"
    assert sorted(p.name for p in modules.iterdir() if p.is_dir()) == ["snake_0", "snake_1"]
    boards = np.zeros((1, 10, 5, 5), np.uint8)
    values, _ = policy_loader.load_score_fn(run_folder / "hill-ppo" / "model" / "policy.onnx")
    assert values(boards).shape == (1, 4)
    assert main([*command, "--num-iters", "2"]) == 0
    assert main([*command, "--num-iters", "3", "--policy-sharing", "shared"]) == 2
    assert "policy_sharing" in capsys.readouterr().err


def test_what_policies_there_cannot_be(ray_with_games: None) -> None:
    config = algorithms.configure("RLLIB_PPO", SMALL, "per_seat")
    assert set(config.policies) == {"snake_0", "snake_1"}
    with pytest.raises(ValueError, match=r"RLLIB_PPO.* DQN"):
        algorithms.configure("DQN", SMALL, "per_seat")
    with pytest.raises(ValueError, match=r"policy_sharing.* 'both'"):
        algorithms.configure("RLLIB_PPO", SMALL, "both")


@pytest.mark.parametrize(
    ("settings", "measured"),
    [({}, 2.4), ({"deep_search_after_moves": 1, "buffer_iterations": 8}, 29)],
)
def test_the_env_runners_that_saturate_exit_are_those_that_were_measured(
    settings: dict[str, Any], measured: float
) -> None:
    from battlesnake_rl.mabs import algorithms

    config = algorithms.configure("EXIT", {})
    config.update_from_dict(settings)
    assert config.settings_class.saturating_env_runners(config.settings) == pytest.approx(
        measured, rel=0.15
    )
