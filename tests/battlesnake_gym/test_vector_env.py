"""Gymnasium's vector environments: one learner per game, and one per seat."""

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import UnsupportedMode
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

from battlesnake_gym import Board, SelfPlayVectorEnv, VectorBattlesnake
from battlesnake_gym.boards.board import UNKNOWN_SEED
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv
from battlesnake_gym.mdp import masks, observations
from battlesnake_gym.snakes import Decision
from tests.battlesnake_gym.test_single import careful
from tests.battlesnake_gym.test_vector import POSITION, choose

NAME = "battlesnake_gym:Battlesnake-v0"
NEXT, SAME = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP


def make(num_envs: int = 8, **arguments: Any) -> BattlesnakeVectorEnv:
    arguments = {"opponents": ["hungry", "safe-random"], "width": 7, "height": 7, **arguments}
    envs = gymnasium.make_vec(
        NAME, num_envs=num_envs, vectorization_mode="vector_entry_point", **arguments
    )
    assert isinstance(envs, BattlesnakeVectorEnv)
    return envs


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_the_last_turn_counts_the_deaths_that_end_games(mode: AutoresetMode) -> None:
    envs = SelfPlayVectorEnv(8, num_snakes=2, width=5, height=5, autoreset_mode=mode)
    _, infos = envs.reset(seed=1)
    deaths = 0
    while not deaths:
        _, _, terminations, _, infos = envs.step(infos["action_mask"].argmin(1))
        last = infos.get("final_info", infos)
        deaths = (terminations & (last["cause"] > 0)).sum()
    assert envs.games.last_turn is not None
    assert envs.games.last_turn.died.sum() == (envs.games.last_turn.cause > 0).sum() == deaths


def test_it_is_a_vector_environment_of_gymnasium() -> None:
    envs = make(5)
    assert isinstance(envs, VectorEnv)
    assert envs.metadata["autoreset_mode"] is NEXT
    assert envs.spec is not None
    assert envs.num_envs == 5
    assert envs.observation_space.shape == (5, 10, 7, 7)
    assert envs.action_space.shape == (5,)
    seen, infos = envs.reset(seed=1)
    assert envs.observation_space.contains(seen)
    assert infos["action_mask"].shape == (5, 4)
    seen, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    assert envs.observation_space.contains(seen)
    assert rewards.shape == terminations.shape == truncations.shape == (5,)
    assert {len(DictInfoToList(envs).step(np.zeros(5, np.int64))[4])} == {5}


def test_the_games_of_a_strategy_have_different_ids() -> None:
    ids: dict[str, int] = {}

    def strategy(board: Board, seconds: float | None = None) -> Decision:
        assert ids.setdefault(board.game.id, board.turn) <= board.turn
        return careful(board, seconds)

    envs = make(3, opponents=[strategy], max_turns=2)
    envs.reset(seed=1)
    for _ in range(5):
        envs.step(np.zeros(3, np.int64))
    assert len(ids) == 6


@pytest.mark.parametrize("observation", ["planes", "facing"])
def test_every_step_is_the_learners_part_of_the_batch(observation: str) -> None:
    envs = make(16, observation=observation, max_turns=40)
    definition = envs.games.observation
    random = np.random.default_rng(3)
    seen, infos = envs.reset(seed=2)
    ended = np.zeros(16, np.bool_)
    counts = {"out": 0, "cut": 0, "acted": 0}
    for _ in range(120):
        seats, lived = infos["seat"].copy(), infos["alive"].copy()
        seen, rewards, out, cut, infos = envs.step(choose(infos, random))
        np.testing.assert_array_equal(infos["reset"], ended)
        np.testing.assert_array_equal(infos["acted"], ~ended)
        np.testing.assert_array_equal(lived, ~ended)
        assert not rewards[ended].any()
        assert not (out | cut)[ended].any()
        np.testing.assert_array_equal(infos["seat"][~ended], seats[~ended])
        for i in range(16):
            state = envs.games.games.state(i)
            snake = state.snakes[infos["seat"][i]]
            np.testing.assert_array_equal(seen[i], definition.encode(state, snake.id))
            if infos["alive"][i]:
                mask = masks.action_mask(envs.games.game, state, snake.id, "fatal")
                facing = np.array(observations.facing(state, snake.id))
                mask = definition.relative_mask(mask, facing)
                np.testing.assert_array_equal(infos["action_mask"][i], mask)
            if not ended[i]:
                assert rewards[i] == snake.alive
                over = bool(envs.games.games.over[i])
                assert out[i] == (over or not snake.alive)
                assert cut[i] == (not out[i] and state.turn == 40)
        counts["out"] += int(out.sum())
        counts["cut"] += int(cut.sum())
        counts["acted"] += int(infos["acted"].sum())
        ended = out | cut
        np.testing.assert_array_equal(infos["alive"], ~ended)
    assert counts["out"] > 20
    assert counts["cut"] > 0
    assert counts["acted"] > 1000


def test_same_step_restarts_at_once_and_returns_the_last_observation() -> None:
    """Both modes play the same games; only the place of the last observation differs."""
    actions = np.random.default_rng(0)
    later, at_once = (make(12, autoreset_mode=mode) for mode in (NEXT, SAME))
    assert at_once.metadata["autoreset_mode"] is SAME
    seen, infos = later.reset(seed=3)
    same_seen, same_infos = at_once.reset(seed=3)
    ends = 0
    np.testing.assert_array_equal(seen, same_seen)
    for _ in range(60):
        chosen = choose(infos, actions)
        seen, rewards, out, cut, infos = later.step(chosen)
        same_seen, same_rewards, same_out, same_cut, same_infos = at_once.step(chosen)
        for one, other in ((rewards, same_rewards), (out, same_out), (cut, same_cut)):
            np.testing.assert_array_equal(one, other)
        ended = out | cut
        np.testing.assert_array_equal(seen[~ended], same_seen[~ended])
        if not ended.any():
            assert "final_obs" not in same_infos
            continue
        ends += int(ended.sum())
        np.testing.assert_array_equal(same_infos["_final_obs"], ended)
        for i in np.flatnonzero(ended):
            np.testing.assert_array_equal(same_infos["final_obs"][i], seen[i])
            assert same_infos["final_info"]["cause"][i] == infos["cause"][i]
            assert same_infos["turn"][i] == 0
            assert same_infos["alive"][i]
        # Environments that wait for the next step catch up with the others.
        later, infos, seen = copy.deepcopy(at_once), same_infos, same_seen
        later.autoreset_mode = NEXT
    assert ends > 30


def test_games_do_not_depend_on_how_many_there_are() -> None:
    few, many = make(3), make(9)
    for _ in range(2):
        infos = [few.reset(seed=4)[1], many.reset(seed=4)[1]]
        for _ in range(60):
            np.testing.assert_array_equal(infos[0]["seat"], infos[1]["seat"][:3])
            chosen = infos[1]["action_mask"].argmax(axis=1)
            one, other = few.step(chosen[:3]), many.step(chosen)
            np.testing.assert_array_equal(one[0], other[0][:3])
            np.testing.assert_array_equal(one[1], other[1][:3])
            infos = [one[4], other[4]]


def test_python_and_engine_opponents_play_together() -> None:
    asked: list[str | None] = []

    def up(board: Board, seconds: float | None = None) -> Decision:
        assert board.game.seed == UNKNOWN_SEED
        asked.append(board.you_id)
        return careful(board)

    envs = BattlesnakeVectorEnv(6, [up, "random", "tail-chaser"], width=7, height=7)
    _, infos = envs.reset(seed=1)
    seats = {int(seat) for seat in infos["seat"]}
    for _ in range(80):
        *_, infos = envs.step(infos["action_mask"].argmax(axis=1))
        seats |= set(infos["seat"].tolist())
    assert len(asked) > 100
    assert seats == {0, 1, 2, 3}


def test_num_snakes_draws_opponents() -> None:
    envs = make(200, opponents=["hungry", "random", "tail-chaser"], num_snakes=2)
    envs.reset(seed=1)
    drawn = np.bincount(envs._seated_opponents._codes.max(axis=1), minlength=4)
    assert drawn[3] > 40  # hungry
    assert drawn[1] > 40  # random
    assert len(envs._seated_opponents._strategies) == drawn[0] > 40  # Played in Python.


def test_the_learner_plays_you_of_a_start_position() -> None:
    board = Board.from_text(POSITION + "B: you\n")
    envs = make(5, opponents=["hungry"])
    _, infos = envs.reset(seed=1, options={"states": [board]})
    assert set(infos["seat"]) == {1}
    assert set(infos["turn"]) == {40}


def test_every_seat_is_an_environment() -> None:
    flat = SelfPlayVectorEnv(3, num_snakes=4, width=7, height=7)
    games = VectorBattlesnake(3, 4, 7, 7)
    assert flat.num_envs == 12
    random = np.random.default_rng(0)
    seen, infos = flat.reset(seed=8)
    games_seen, games_infos = games.reset(seed=8)
    for _ in range(80):
        np.testing.assert_array_equal(seen, games_seen.reshape(12, 10, 7, 7))
        np.testing.assert_array_equal(infos["alive"], games_infos["alive"].ravel())
        np.testing.assert_array_equal(
            infos["action_mask"], games_infos["action_mask"].reshape(12, 4)
        )
        np.testing.assert_array_equal(infos["turn"], games_infos["turn"].repeat(4))
        chosen = choose(infos, random)
        seen, rewards, out, cut, infos = flat.step(chosen)
        games_seen, games_rewards, games_out, games_cut, games_infos = games.step(
            chosen.reshape(3, 4)
        )
        for one, other in ((rewards, games_rewards), (out, games_out), (cut, games_cut)):
            np.testing.assert_array_equal(one, other.ravel())


def test_episode_statistics_of_gymnasium_count_whole_games() -> None:
    envs = RecordEpisodeStatistics(make(6))
    random = np.random.default_rng(0)
    _, infos = envs.reset(seed=1)
    for _ in range(100):
        *_, infos = envs.step(choose(infos, random))
    assert len(envs.return_queue) > 10
    # The survival reward is 1 per turn except the last, unless the learner survived it.
    for reward, length in zip(envs.return_queue, envs.length_queue, strict=True):
        assert length - 1 <= reward <= length


def test_errors_name_the_argument() -> None:
    envs = make(3)
    envs.reset(seed=1)
    with pytest.raises(ValueError, match=r"actions.* 3"):
        envs.step(np.zeros(4, np.int64))
    with pytest.raises(ValueError, match=r"0.* 3.* 4"):
        envs.step(np.array([0, 4, 0]))
    with pytest.raises(ValueError, match=r"autoreset_mode .*NextStep.* SameStep"):
        BattlesnakeVectorEnv(2, autoreset_mode="Disabled")
    with pytest.raises(UnsupportedMode, match=r"gymnasium\.make"):
        make(2, render_mode="ansi")
