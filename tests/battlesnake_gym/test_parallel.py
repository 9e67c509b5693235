"""The PettingZoo environment: PettingZoo's API tests and further properties."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded, UnsupportedMode
from pettingzoo.test import parallel_api_test, parallel_seed_test  # type: ignore[import-untyped]
from pettingzoo.utils import parallel_to_aec  # type: ignore[import-untyped]

from battlesnake_gym import parallel_env, rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.env.parallel_env import ParallelBattlesnake
from battlesnake_gym.mdp import masks
from battlesnake_gym.rules import CAUSES, MOVES, Game

Step = tuple[Any, Any, Any, Any, Any, Any]
"""Actions, observations, rewards, terminations, truncations and infos of each agent."""

small = partial(parallel_env, num_snakes=3, width=7, height=7)


def sample(env: ParallelBattlesnake, infos: dict[str, Any]) -> dict[str, int]:
    """An allowed action for every agent."""
    return {a: int(env.action_space(a).sample(infos[a]["action_mask"])) for a in env.agents}


def play(env: ParallelBattlesnake, **reset: Any) -> list[Step]:
    """One game of allowed random actions: the results of the reset and every step, and actions."""
    observations, infos = env.reset(**reset)
    for number, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(number)
    trace: list[Step] = [(None, observations, {}, {}, {}, infos)]
    while env.agents:
        actions = sample(env, infos)
        trace.append((actions, *env.step(actions)))
        infos = trace[-1][5]
    return trace


@pytest.mark.parametrize("ruleset", rules.RULESETS)
def test_pettingzoo_tests(ruleset: str, capsys: pytest.CaptureFixture[str]) -> None:
    parallel_api_test(small(ruleset=ruleset), num_cycles=100)
    parallel_seed_test(partial(small, ruleset=ruleset), num_cycles=100)


@pytest.mark.parametrize("ruleset", rules.RULESETS)
def test_every_game_is_the_game_of_the_rules(ruleset: str) -> None:
    env = small(ruleset=ruleset, rewards={"another_turn": 1, "died": -5})
    for seed in range(4):
        trace = play(env, seed=seed)
        game = Game(ruleset=ruleset, seed=int(env._game.infos["seed"][0]))
        by_rules = Board.new(7, 7, 3, game=game)
        for actions, observations, rewards, terminations, truncations, infos in trace:
            if actions is not None:
                by_rules.step({agent: MOVES[action] for agent, action in actions.items()})
                agents = set(actions)
                assert set(rewards) == set(terminations) == set(truncations) == agents
                for agent in agents:
                    alive = by_rules.snake(agent).alive
                    assert terminations[agent] == (not alive or by_rules.is_over())
                    assert rewards[agent] == (1 if alive else -5)
                assert not any(truncations.values())
                assert set(observations) == set(infos) == agents
            for agent, observation in observations.items():
                snake = by_rules.snake(agent)
                assert env.observation_space(agent).contains(observation)
                np.testing.assert_array_equal(
                    observation, env._game.vector.observation.encode(by_rules, agent)
                )
                expected = masks.action_mask(game, by_rules, agent, "fatal")
                np.testing.assert_array_equal(infos[agent]["action_mask"], expected)
                assert CAUSES[infos[agent]["cause"]] == snake.eliminated_cause
                killer = infos[agent]["killer"]
                assert (f"snake_{killer}" if killer >= 0 else "") == snake.eliminated_by
        assert by_rules.is_over()
        assert env.board.snakes == by_rules.snakes


def test_truncation() -> None:
    env = small(max_turns=3)
    trace = play(env, seed=1)
    assert len(trace) == 4
    assert all(trace[-1][4].values())
    assert not any(trace[-1][3].values())
    with pytest.raises(ResetNeeded, match="over"):
        env.step({})


def test_it_converts_to_turns() -> None:
    env = parallel_to_aec(small())
    env.reset(seed=1)
    for seed, agent in enumerate(env.agents):
        # Without a seed, every run plays another game, and some are long.
        env.action_space(agent).seed(seed)
    for agent in env.agent_iter():
        _, _, terminated, truncated, info = env.last()
        ended = terminated or truncated
        env.step(None if ended else env.action_space(agent).sample(info["action_mask"]))
    assert not env.agents


def test_start_from_positions() -> None:
    boards = [Board.new(7, 7, 2, game=Game(seed=4)) for _ in range(2)]
    boards[1].step({snake.id: "up" for snake in boards[1].living})
    env = small()
    turns = set()
    for seed in range(20):
        env.reset(seed=seed, options={"states": [boards[0], boards[1].to_api()]})
        assert env.agents == ["snake_0", "snake_1"]
        turns.add(env.board.turn)
    assert turns == {0, 1}
    env.reset()
    assert len(env.agents) == 3


def test_render(capsys: pytest.CaptureFixture[str]) -> None:
    """Other modes than "human" are those of the single environment (`OneGame.render`)."""
    env = small(render_mode="ansi")
    env.reset(seed=1)
    assert env.render() == str(env.board)
    env = small(render_mode="human")
    env.reset(seed=1)
    assert str(env.board) in capsys.readouterr().out
    env.step(dict.fromkeys(env.agents, 0))
    assert str(env.board) in capsys.readouterr().out
    assert env.render() is None
    with pytest.raises(UnsupportedMode, match=r"rgb_array.* 'gif'"):
        small(render_mode="gif")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"snake_0": None}, r"'snake_0'.* None"),
        ({"snake_1": 4}, r"'snake_1'.* 0.* 3.* 4"),
        ({"snake_2": 0.5}, r"'snake_2'.* 0.5"),
        ({"snake_3": 0}, r"actions.* 'snake_3'"),
    ],
)
def test_bad_actions(changes: dict[str, Any], message: str) -> None:
    env = small()
    env.reset(seed=1)
    with pytest.raises(ValueError, match=message):
        env.step({**dict.fromkeys(env.agents, 0), **changes})
    assert env.board.turn == 0
    with pytest.raises(ValueError, match="'snake_1'"):
        env.step({"snake_0": 0, "snake_2": 0})
