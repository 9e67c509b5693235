"""The Gymnasium environment: Gymnasium's checker and further properties."""

import itertools
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded, UnsupportedMode
from gymnasium.utils.env_checker import check_env

from battlesnake_gym import rules, snakes
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.env.battlesnake_env import BattlesnakeEnv
from battlesnake_gym.mdp import masks, observations
from battlesnake_gym.rules import MOVES, Game
from battlesnake_gym.snakes import Decision
from tests.battlesnake_gym.test_vector import POSITION

NAME = "battlesnake_gym:Battlesnake-v0"

Env = gymnasium.Env[Any, Any]
Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated and info."""


def careful(board: Board, seconds: float | None = None) -> Decision:
    """Choose a safe move, or up if there is none."""
    return Decision((board.safe_moves() or ["up"])[0])


def make(**arguments: Any) -> Env:
    arguments = {"opponents": [careful, careful], "width": 7, "height": 7, **arguments}
    return gymnasium.make(NAME, **arguments)


def play(env: Env, **reset: Any) -> list[Step]:
    """One game with the first allowed action: the results of the reset and every step."""
    observation, info = env.reset(**reset)
    trace: list[Step] = [(observation, 0.0, False, False, info)]
    while not (trace[-1][2] or trace[-1][3]):
        trace.append(env.step(int(trace[-1][4]["action_mask"].argmax())))
    return trace


@pytest.mark.parametrize("ruleset", rules.RULESETS)
def test_check_env(ruleset: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_env(make(ruleset=ruleset).unwrapped)


def test_check_env_by_default_and_alone(capsys: pytest.CaptureFixture[str]) -> None:
    check_env(gymnasium.make(NAME).unwrapped)
    check_env(gymnasium.make(NAME, opponents=[]).unwrapped)


@pytest.mark.parametrize("observation", ["centered", "facing", "bordered-num"])
def test_check_env_with_other_observations(
    observation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_env(make(observation={"name": observation, "frame_stack": 2}).unwrapped)


@pytest.mark.parametrize("observation", ["planes", "facing"])
def test_every_game_is_the_game_of_the_rules(observation: str) -> None:
    env = make(opponents=[careful] * 3, observation=observation)
    definition = env.get_wrapper_attr("observation")
    turns = 0
    for seed in range(6):
        trace = play(env, seed=seed)
        info = trace[0][4]
        by_rules = Board.new(7, 7, 4, game=Game(seed=info["seed"]))
        learner = info["board"].you_id
        for before, (seen, reward, terminated, truncated, info) in itertools.pairwise(trace):
            moves = {}
            for snake in by_rules.living:
                by_rules.you_id = snake.id
                moves[snake.id] = careful(by_rules).move
            action = int(before[4]["action_mask"].argmax())
            facing = observations.facing(by_rules, learner)
            turned = definition.absolute_actions(np.array(action), np.array(facing))
            moves[learner] = MOVES[turned]
            by_rules.step(moves)

            board, you = info["board"], by_rules.snake(learner)
            assert (board.turn, board.snakes, board.food) == (
                by_rules.turn,
                by_rules.snakes,
                by_rules.food,
            )
            assert board.you.id == learner == by_rules.snakes[info["seat"]].id
            assert board.game.seed == UNKNOWN_SEED
            assert terminated == (not you.alive or by_rules.is_over())
            assert not truncated
            assert reward == (1.0 if you.alive else 0.0)
            assert info["cause"] == you.eliminated_cause
            np.testing.assert_array_equal(seen, definition.encode(by_rules, learner))
            allowed = masks.action_mask(by_rules.game, by_rules, learner, "fatal")
            mask = definition.relative_mask(
                allowed, np.array(observations.facing(by_rules, learner))
            )
            np.testing.assert_array_equal(info["action_mask"], mask)
            assert info["action_mask"].dtype == np.int8
            turns += 1
        assert trace[-1][2]
    assert turns > 30


def test_observations_are_the_callers_own() -> None:
    env = make(opponents=[])
    first, info = env.reset(seed=1)
    kept, mask = first.copy(), info["action_mask"].copy()
    env.step(int(info["action_mask"].argmax()))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(info["action_mask"], mask)


class Named:
    """An opponent that records which snakes it plays."""

    def __init__(self, played: set[str | None]) -> None:
        self.played = played

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        self.played.add(board.you_id)
        return Decision("up")


def test_opponents_change_seats() -> None:
    played: tuple[set[str | None], set[str | None]] = set(), set()
    # BattlesnakeEnv itself, because gymnasium.make would copy the opponents.
    env = BattlesnakeEnv([Named(played[0]), Named(played[1])], 7, 7)
    deals = set()
    for seed in range(60):
        learner = env.reset(seed=seed)[1]["board"].you_id
        env.step(0)
        deals.add((learner, *(p.pop() for p in played)))
        assert played == (set(), set())
    assert deals == set(itertools.permutations(["snake_0", "snake_1", "snake_2"]))


def test_opponents_are_drawn_from_a_pool() -> None:
    played: list[set[str | None]] = [set() for _ in range(5)]
    env = BattlesnakeEnv([Named(p) for p in played], 7, 7, num_snakes=3)
    drawn = set()
    for seed in range(40):
        info = env.reset(seed=seed)[1]
        assert len(info["board"].snakes) == 3
        env.step(0)
        drawn.add(tuple(len(p) for p in played))
        assert sum(len(p) for p in played) == 2
        for p in played:
            p.clear()
    assert len(drawn) > 10


def test_named_opponents_are_built_for_every_game() -> None:
    made = []

    class Counting:
        def __init__(self, seed: int) -> None:
            self.turns = -1
            made.append(seed)

        def __call__(self, board: Board, seconds: float | None = None) -> Decision:
            self.turns += 1
            assert self.turns == board.turn
            return careful(board)

    snakes.register("counting", Counting)
    try:
        env = make(opponents=["counting"])
        made.clear()  # The environment makes each snake once as a check.
        play(env, seed=3)
        play(env)
        first = made.copy()
        play(env, seed=3)
        play(env)
    finally:
        snakes._factories.pop("counting")
    assert len(set(first)) == 2
    assert made == first * 2


def test_opponents_cannot_change_the_game() -> None:
    def vandal(board: Board, seconds: float | None = None) -> Decision:
        board.snakes.clear()
        board.food.clear()
        return Decision("up")

    env = make(opponents=[vandal])
    info = env.reset(seed=1)[1]
    info = env.step(int(info["action_mask"].argmax()))[4]
    assert len(info["board"].snakes) == 2
    assert info["board"].food


def test_the_learner_may_change_its_board() -> None:
    env, same = make(), make()
    info, other = env.reset(seed=1)[1], same.reset(seed=1)[1]
    for _ in range(5):
        action = int(other["action_mask"].argmax())
        info["board"].snakes.clear()
        info, other = env.step(action)[4], same.step(action)[4]
        assert info["board"] == other["board"]


def test_no_step_after_the_learners_end() -> None:
    env = BattlesnakeEnv([careful, careful], 7, 7)
    for seed in range(20):
        board = play(env, seed=seed)[-1][4]["board"]
        with pytest.raises(ResetNeeded, match="over"):
            env.step(0)
        if not board.is_over():
            break
    assert not board.is_over()


def test_truncation() -> None:
    env = make(opponents=[], max_turns=4)
    trace = play(env, seed=1)
    assert len(trace) == 5
    assert trace[-1][2:4] == (False, True)


def test_start_from_positions() -> None:
    board = Board.from_text(POSITION + "B: you\n")
    env = make(opponents=[careful, careful])
    for seed in range(10):
        _, info = env.reset(seed=seed, options={"states": [board.to_api()]})
        assert info["seat"] == 1  # The learner plays "you".
        assert info["board"].turn == 40
        assert info["board"].snakes[0].health == 50
        assert [s.body for s in info["board"].living] == [s.body for s in board.snakes]
    board.you_id = None
    seats = [env.reset(seed=s, options={"states": [board]})[1]["seat"] for s in range(20)]
    assert set(seats) == {0, 1}
    other = Board.new(7, 7, 2)
    turns = [
        env.reset(seed=s, options={"states": [board, other]})[1]["board"].turn for s in range(20)
    ]
    assert set(turns) == {0, 40}
    assert len(env.reset()[1]["board"].snakes) == 3
    with pytest.raises(ValueError, match="'state'"):
        env.reset(options={"state": board})


def test_render(capsys: pytest.CaptureFixture[str]) -> None:
    with make(render_mode="ansi") as env:
        _, info = env.reset(seed=1)
        assert env.render() == str(info["board"])
    with make(render_mode="rgb_array") as env:
        env.reset(seed=1)
        picture = env.render()
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3
        env.step(0)
        assert env.render().shape == picture.shape
        assert (env.render() != picture).any()
    capsys.readouterr()
    with make(render_mode="human") as env:
        _, info = env.reset(seed=1)
        assert str(info["board"]) in capsys.readouterr().out
        _, _, _, _, info = env.step(int(info["action_mask"].argmax()))
        assert str(info["board"]) in capsys.readouterr().out
        assert env.render() is None


def test_gymnasium_vectorizes_it() -> None:
    env = gymnasium.make_vec(
        NAME, num_envs=2, opponents=["random"], width=7, height=7, vectorization_mode="sync"
    )
    observation, infos = env.reset(seed=1)
    for _ in range(30):
        observation, _, _, _, infos = env.step(infos["action_mask"].argmax(axis=1))
    assert observation.shape == (2, 10, 7, 7)
    env.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"opponents": ["hungyr"]}, r"'hungyr'.* hungry"),
        ({"opponents": "hungry"}, "opponents"),
        ({"opponents": [3]}, r"opponents.* 3"),
        ({"opponents": [], "num_snakes": 3}, r"opponents.* 3"),
    ],
)
def test_bad_arguments(arguments: Any, message: str) -> None:
    arguments = {"opponents": ["hungry"], "width": 7, "height": 7, **arguments}
    with pytest.raises(ValueError, match=message):
        BattlesnakeEnv(**arguments)


def test_bad_render_mode() -> None:
    with pytest.raises(UnsupportedMode, match=r"rgb_array.* 'svg'"):
        BattlesnakeEnv([], render_mode="svg")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (4, r"action.* 0.* 3.* 4"),
        (-1, r"action.* 0.* 3.* -1"),
        (1.0, r"action.* 1.0"),
        (True, r"action.* True"),
        ("up", r"action.* 'up'"),
        (None, r"action.* None"),
        (np.array([1]), "action"),
    ],
)
def test_bad_actions(action: Any, message: str) -> None:
    env = BattlesnakeEnv([], 7, 7)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=message):
        env.step(action)


def test_an_invalid_move_of_an_opponent_raises() -> None:
    env = BattlesnakeEnv([lambda board, seconds=None: Decision("north")], 7, 7)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"up.*, got 'north'"):
        env.step(0)


def test_the_mask_has_the_name_that_sb3_contrib_expects() -> None:
    env = make(opponents=["hungry"])
    _, info = env.reset(seed=1)
    masks = env.get_wrapper_attr("action_masks")()
    assert masks.dtype == np.bool_
    np.testing.assert_array_equal(masks, info["action_mask"])
