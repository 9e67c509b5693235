"""Smaller boards at first: what is played when, and that the policy file knows."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.base import supported_settings
from battlesnake_rl.mabs.envs import board_size_schedule
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.multi_agent_env import BattlesnakeMultiAgentEnv
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_server.strategy_loader import _PolicySnake
from sagemaker_rl.runs.checkpoints import restore_algorithm
from tests.algorithms import built
from tests.mabs.conftest import SMALL

pytestmark = pytest.mark.filterwarnings("default")

CURRICULUM = {"width": 7, "height": 7, "curriculum": [[0, 3], [200, 5], [400, 7]]}


def test_which_boards_when() -> None:
    games = env_options(CURRICULUM)
    sizes = [games.curriculum_board_size(steps) for steps in (0, 199, 200, 399, 400, 10**6)]
    assert sizes == [*(3, 3, 5, 5, 7, 7)]
    assert games.board_sizes == [[3, 3], [5, 5], [7, 7]]
    assert env_options({"width": 7, "height": 7}).curriculum_board_size(0) is None
    assert env_options({"width": 9, "height": 7}).board_sizes == [[9, 7]]


@pytest.mark.parametrize(
    "curriculum",
    [[[0, 8]], [[5, 3]], [[0, 5], [-1, 7]], [[0, 5], [9, "7"]], [[0]], 7, [0, 7], [[0.0, 5]]],
)
def test_an_impossible_curriculum_is_refused(curriculum: Any) -> None:
    with pytest.raises(ValueError, match="curriculum"):
        make_vector_env(2, {"width": 7, "height": 7, "curriculum": curriculum})


def test_small_boards_look_as_the_live_snake_will_see_them() -> None:
    vector = make_vector_env(3, SMALL | CURRICULUM, board_size=5)
    seen, infos = vector.reset(seed=4)
    for _ in range(3):
        for game, side in enumerate((5, 5, 7)):
            state = vector.games.state(game)
            assert (state.width, state.height) == (side, side)
            for seat, snake in enumerate(state.snakes):
                alone = np.zeros(seen.shape[2:], np.uint8)
                vector.observation.encode(state, snake.id, out=alone)
                np.testing.assert_array_equal(alone, seen[game, seat])
        seen, _, _, _, infos = vector.step(infos["action_mask"].argmax(-1))


def test_boards_grow_while_training(small_config: Any) -> None:
    config = small_config("DQN", **CURRICULUM)
    with built(config) as algorithm:
        sizes = []
        for _ in range(5):
            algorithm.train()
            games = algorithm.env_runner.env.games
            sizes.append([games.state(game).width for game in (0, 3)])
    # An iteration is a little more than 128 turns; one game is on the largest board all along.
    assert sizes[:2] == [[3, 7], [5, 7]]
    assert sizes[2:] in ([[5, 7], [7, 7], [7, 7]], [[7, 7], [7, 7], [7, 7]])


def test_only_our_algorithms_have_one() -> None:
    with pytest.raises(ValueError, match=r"curriculum.* PPO.* DISTIL.* RLLIB_PPO"):
        algorithms.configure("RLLIB_PPO", CURRICULUM)


@pytest.mark.parametrize("name", ["RLLIB_PPO", "DQN"])
def test_the_pack_s_sizes_come_in_turn(
    small_config: Any, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(board_size_schedule, "_board_size_after", (7, 11, 19, 7).__getitem__)
    config = small_config(
        "DQN", iterate_map_size=True, observation=board_size_schedule.FIXED_SHAPE_OBSERVATION
    )
    if name != "DQN":
        config = algorithms.configure(name, config.env_config)
        config.training(train_batch_size_per_learner=256, minibatch_size=128, num_epochs=1)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2)

    def size(algorithm: Any) -> int:
        algorithm.train()
        env = algorithm.env_runner.env
        first = env.games if name == "DQN" else env.envs[0].unwrapped._games.games
        return int(first.state(0).width)

    with built(config) as algorithm:
        assert [size(algorithm) for _ in range(2)] == [5, 11]
        algorithm.save_to_path(str(tmp_path))
    with built(config) as algorithm:
        restore_algorithm(algorithm, algorithm.config, tmp_path, 0)
        assert size(algorithm) == 19


def test_the_pack_s_sizes_need_a_view_of_one_size() -> None:
    with pytest.raises(ValueError, match=r"max-.* planes"):
        make_vector_env(1, {"iterate_map_size": True, "observation": "planes"})
    bordered = {"iterate_map_size": True, "observation": "max-bordered-51s"}
    with pytest.raises(ValueError, match=r"iterate_map_size.* curriculum"):
        make_vector_env(1, bordered | {"curriculum": [[0, 5]]})
    assert env_options(bordered | {"width": 11, "height": 11}).board_sizes == [
        *([7, 7], [11, 11], [19, 19])
    ]


def test_rewards_are_cut_to_their_sign_as_in_the_pack() -> None:
    cut = {"num_snakes": 1, "rewards": {"another_turn": 0.01}, "clip_rewards": True}
    env = BattlesnakeMultiAgentEnv(cut)
    env.reset(seed=1)
    assert env.step({"snake_0": 0})[1] == {"snake_0": 1}
    with pytest.raises(ValueError, match=r"env_config\.clip_rewards.*reward"):
        supported_settings.check_settings(algorithms.configure("DQN", cut))


def test_the_policy_plays_all_of_its_boards(ray_session: None, tmp_path: Path) -> None:
    settings = shlex.split("""
        --algorithm DQN --num-snakes 2 --board-size 7 --curriculum [[0,5],[300,7]] --num-iters 1
        --seed 3 --num-env-runners 0 --num-envs-per-env-runner 4
        --rl.training.config.min_sample_timesteps_per_iteration 128
    """)
    assert main([*settings, "--runs-dir", str(tmp_path), "--name", "run"]) == 0
    policy = OnnxPolicy.load(tmp_path / "run" / "model" / "policy.onnx")
    assert policy.board_sizes == {(5, 5), (7, 7)}
    for side in (5, 7):
        board = Board.new(side, side, 2)
        board.you_id = board.snakes[0].id
        assert _PolicySnake(policy)(board).move in board.safe_moves()
