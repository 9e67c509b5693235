"""The vector environment against the Python rules, which play every game in parallel."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from battlesnake_gym import rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.engine.python_engine import PythonGames
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.mdp import masks
from battlesnake_gym.rules import CAUSES, MOVES, Game, Settings, State

AnyArray = npt.NDArray[Any]
Infos = dict[str, AnyArray]
Step = tuple[AnyArray | None, AnyArray, AnyArray, AnyArray, AnyArray, Infos]
"""Actions, observation, rewards, terminations, truncations and infos."""


def choose(infos: dict[str, Any], random: np.random.Generator) -> AnyArray:
    """Random moves that the mask allows."""
    scores = random.random(infos["action_mask"].shape) * infos["action_mask"]
    actions: AnyArray = scores.argmax(axis=-1)
    return actions


def play(env: VectorBattlesnake, steps: int, seed: int = 0) -> list[Step]:
    """Copies of the results of the reset and of ``steps`` steps."""
    random = np.random.default_rng(seed)
    observation, infos = env.reset(seed=seed)
    seats = env.num_games, env.num_snakes
    nothing = np.zeros(seats, np.float32), np.zeros(seats, bool), np.zeros(seats, bool)
    trace: list[Step] = [(None, observation.copy(), *nothing, copied(infos))]
    for _ in range(steps):
        actions = choose(infos, random)
        observation, rewards, terminations, truncations, infos = env.step(actions)
        trace.append(
            (actions, observation.copy(), rewards, terminations, truncations, copied(infos))
        )
    return trace


def copied(infos: Infos) -> Infos:
    return {name: value.copy() for name, value in infos.items()}


@pytest.mark.parametrize("ruleset", rules.RULESETS)
def test_every_game_is_the_game_of_the_rules(ruleset: str) -> None:
    env = VectorBattlesnake(5, 3, 7, 7, ruleset=ruleset, max_turns=15, food_rng="official")
    assert env.max_turns is not None
    ids = [f"snake_{s}" for s in range(3)]
    games, states = {}, {}
    ends = cuts = 0
    for actions, observation, rewards, terminations, truncations, infos in play(env, 150, seed=3):
        for i in range(5):
            if infos["reset"][i]:
                games[i] = replace(env.game, seed=int(infos["seed"][i]))
                states[i] = rules.start(games[i], 7, 7, ids)
                assert not rewards[i].any()
                assert not terminations[i].any()
                assert not truncations[i].any()
            else:
                assert actions is not None
                alive = [snake.alive for snake in states[i].snakes]
                moves = {ids[s]: MOVES[actions[i, s]] for s in range(len(ids)) if alive[s]}
                rules.step(games[i], states[i], moves)
                over = rules.is_over(games[i], states[i])
                late = not over and states[i].turn >= env.max_turns
                ends += over
                cuts += late
                for s, snake in enumerate(states[i].snakes):
                    assert infos["acted"][i, s] == alive[s]
                    assert terminations[i, s] == (alive[s] and (over or not snake.alive))
                    assert truncations[i, s] == (alive[s] and snake.alive and late)
            check_against(env, i, games[i], states[i], observation, infos)
    assert min(ends, cuts) > 2


def check_against(
    env: VectorBattlesnake, i: int, game: Game, state: State, observation: AnyArray, infos: Infos
) -> None:
    assert infos["turn"][i] == state.turn
    assert env.max_turns is not None
    running = not rules.is_over(game, state) and state.turn < env.max_turns
    for s, snake in enumerate(state.snakes):
        assert infos["alive"][i, s] == (snake.alive and running)
        assert CAUSES[infos["cause"][i, s]] == snake.eliminated_cause
        killer = infos["killer"][i, s]
        assert (f"snake_{killer}" if killer >= 0 else "") == snake.eliminated_by
        assert infos["health"][i, s] == snake.health
        assert infos["length"][i, s] == (snake.length if snake.alive else 0)
        expected = env.observation.encode(state, snake.id)
        np.testing.assert_array_equal(observation[i, s], expected)
        mask = masks.action_mask(game, state, snake.id, env.action_mask_kind)
        np.testing.assert_array_equal(infos["action_mask"][i, s], mask)


def test_the_python_rules_work_without_the_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def trace() -> list[Step]:
        env = VectorBattlesnake(3, [2, 3, 3], [7, 9, 9], 7, food_rng="official", max_turns=20)
        return play(env, 50, seed=8)

    fast = trace()
    monkeypatch.setattr("battlesnake_gym.engine.engine.Games", PythonGames)
    check_same(fast, trace())


def check_same(first: list[Step], second: list[Step]) -> None:
    for one, two in zip(first, second, strict=True):
        for a, b in zip(one[:5], two[:5], strict=True):
            np.testing.assert_array_equal(a, b)
        for name, value in one[5].items():
            np.testing.assert_array_equal(value, two[5][name])


def test_shapes_and_dtypes() -> None:
    env = VectorBattlesnake(6, 4, 11, 7)
    observation, infos = env.reset(seed=1)
    assert observation.shape == (6, 4, *env.single_observation_space.shape)
    assert observation.shape[-2:] == (7, 11)
    observation, rewards, terminations, truncations, infos = env.step(np.zeros((6, 4), int))
    assert observation.dtype == np.uint8
    assert all(env.single_observation_space.contains(o) for o in observation.reshape(24, 10, 7, 11))
    assert (rewards.shape, rewards.dtype.type) == ((6, 4), np.float32)
    assert (terminations.shape, terminations.dtype.type) == ((6, 4), np.bool_)
    assert (truncations.shape, truncations.dtype.type) == ((6, 4), np.bool_)
    kinds = {name: (value.shape, value.dtype.type) for name, value in infos.items()}
    assert kinds == {
        "action_mask": ((6, 4, 4), np.bool_),
        "alive": ((6, 4), np.bool_),
        "acted": ((6, 4), np.bool_),
        "reset": ((6,), np.bool_),
        "cause": ((6, 4), np.uint8),
        "killer": ((6, 4), np.int8),
        "length": ((6, 4), np.int32),
        "health": ((6, 4), np.int16),
        "turn": ((6,), np.int32),
        "seed": ((6,), np.int64),
    }


def test_only_the_engine_writes_to_the_observations() -> None:
    env = VectorBattlesnake(2, 2, 7, 7)
    observation, _ = env.reset(seed=1)
    with pytest.raises(ValueError, match="read-only"):
        observation[:] = 1
    with pytest.raises(ValueError, match="read-only"):
        env.step(np.zeros((2, 2), int))[0][:] = 1


def test_other_seed_other_games() -> None:
    env = VectorBattlesnake(4, 3, 7, 7)
    first = env.reset(seed=1)[0].copy()
    again = env.reset()[0].copy()
    other = env.reset(seed=2)[0].copy()
    assert (first != again).any()
    assert (first != other).any()
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
    np.testing.assert_array_equal(env.reset()[0], again)


def test_unseeded_environments_differ() -> None:
    seeds = [VectorBattlesnake(4, 2, 7, 7).reset()[1]["seed"] for _ in range(2)]
    assert (seeds[0] != seeds[1]).all()


def test_seeds_of_successive_games_are_far_apart() -> None:
    env = VectorBattlesnake(2, 1, 7, 7)
    seeds = [env.reset(seed=4)[1]["seed"].copy()]
    seeds += [env.reset()[1]["seed"].copy() for _ in range(5000)]
    assert (np.array(seeds) > 0).all()
    # The official engine reduces seeds modulo this number, and turn t of a game uses seed + t.
    modulus = 2**31 - 1
    for game in np.array(seeds).T:
        reduced = np.sort(game % modulus)
        gaps = np.diff(np.append(reduced, reduced[0] + modulus))
        assert gaps.min() > 10_000


def test_mixed_sizes_and_snake_counts() -> None:
    widths, heights, counts = [7, 11, 9, 11], [7, 11, 11, 9], [2, 4, 3, 1]
    with pytest.raises(ValueError, match="solo"):
        VectorBattlesnake(4, counts, widths, heights)
    env = VectorBattlesnake(4, counts, widths, heights, ruleset="solo", food_rng="official")
    observation, infos = env.reset(seed=2)
    assert observation.shape[-2:] == (11, 11)
    np.testing.assert_array_equal(infos["alive"].sum(axis=1), counts)
    for i in range(4):
        ids = [f"snake_{s}" for s in range(counts[i])]
        game = replace(env.game, seed=int(infos["seed"][i]))
        state = rules.start(game, widths[i], heights[i], ids)
        assert env.games.state(i) == state
        for s in range(4):
            expected = np.zeros_like(observation[i, s])
            if s < counts[i]:
                env.observation.encode(state, ids[s], out=expected)
            np.testing.assert_array_equal(observation[i, s], expected)
    for _, observation, rewards, terminations, _, infos in play(env, 60)[1:]:
        unused = np.arange(4) >= np.array(counts)[:, None]
        for value in (infos["alive"], infos["acted"], rewards, terminations):
            assert not value[unused].any()
        assert not observation[unused].any()


def test_one_snake_plays_solo() -> None:
    env = VectorBattlesnake(3, 1, 7, 7)
    assert env.game.solo
    trace = play(env, 20)
    assert trace[5][5]["turn"].max() == 5


POSITION = """
turn=40
. . . . . . .
. A < < . . .
. . . ^ . * .
. . . . . . .
. . . v . . .
. * . v . . .
. . . > B . .
A: health=50
"""


def test_start_from_positions() -> None:
    first = Board.from_text(POSITION)
    second = Board.new(7, 7, 2, game=Game(seed=8))
    for _ in range(3):
        second.step({snake.id: "up" for snake in second.living})
    request = Board.from_text(POSITION).to_api("a")
    env = VectorBattlesnake(5, 3, 11, 11, food_rng="official", max_turns=45)
    observation, infos = env.reset(seed=1, options={"states": [first, second, request]})
    np.testing.assert_array_equal(infos["turn"], [40, 3, 40, 40, 3])
    assert not infos["alive"][:, 2].any()
    assert infos["health"][0, 0] == 50
    assert infos["length"][0].tolist() == [first.snakes[0].length, first.snakes[1].length, 0]
    expected = np.zeros_like(observation[0, 0])
    env.observation.encode(first, "a", out=expected)
    np.testing.assert_array_equal(observation[0, 0], expected)
    # Each game takes the next position when it restarts, and the map's start after reset().
    starts = {i: [int(infos["turn"][i])] for i in range(5)}
    for _ in range(60):
        _, _, _, _, infos = env.step(np.zeros((5, 3), int))
        for i in np.flatnonzero(infos["reset"]).tolist():
            starts[i].append(int(infos["turn"][i]))
    for i, turns in starts.items():
        assert len(turns) > 3
        assert turns == [(40, 3, 40)[(i + k) % 3] for k in range(len(turns))]
    _, infos = env.reset(options={"states": [first, second, request]})
    np.testing.assert_array_equal(infos["turn"], [40, 3, 40, 40, 3])
    env.reset()
    assert not env.games.turn.any()
    assert (env.games.alive.sum(axis=1) == 3).all()
    assert env.games.state(0).width == 11


@pytest.mark.parametrize("side", [7, 9])
def test_a_map_that_runs_out_of_cells_is_truncated(side: int) -> None:
    settings = Settings(hazard_damage_per_turn=0)
    env = VectorBattlesnake(4, 2, side, side, map="hz_scatter", settings=settings)
    start = replace(Board.new(7, 7, 2), turn=97)
    _, infos = env.reset(seed=1, options={"states": [start]})
    for turn in (98, 99):
        _, _, _, truncations, infos = env.step(choose(infos, np.random.default_rng(turn)))
        assert (infos["turn"] == turn).all()
        assert (truncations == (turn == 99)).all()
    _, _, _, _, infos = env.step(np.zeros((4, 2), int))
    assert infos["reset"].all()
    with pytest.raises(ValueError, match="ends at turn 99"):
        env.reset(options={"states": [replace(start, turn=99)]})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((2, 3), int), r"\(2, 2\).* \(2, 3\)"),
        (np.zeros((2, 2)), "float64"),
        (np.zeros((2, 2), bool), "bool"),
        (np.full((2, 2), 4), r"0.* 3.* 4"),
        (np.full((2, 2), 260), r"0.* 3.* 260"),
        (np.full((2, 2), -1), r"0.* 3.* -1"),
        ([["up", "up"], ["up", "up"]], "integers"),
    ],
)
def test_bad_actions(actions: Any, message: str) -> None:
    env = VectorBattlesnake(2, 2, 7, 7)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=message):
        env.step(actions)
    assert not env.games.turn.any()


def test_bad_states() -> None:
    env = VectorBattlesnake(2, 2, 7, 7, max_turns=30)
    small = Board.new(7, 7, 2)
    over = small.copy()
    while not over.is_over():
        over.step({snake.id: "up" for snake in over.living})
    no_food = small.to_api("snake_0")
    no_food["board"]["food"] = 3
    for states, message in [
        ([small, Board.new(11, 11, 2)], r"states\[1\].*width 11.*7"),
        ([Board.new(7, 7, 3)], r"states\[0\].*num_snakes 3.*2"),
        ([over], r"states\[0\]"),
        ([replace(small, turn=30)], r"states\[0\].* 30.* max_turns"),
        ([no_food], r"states\[0\]: board\.food"),
        ([7], r"states\[0\].* State.* int"),
        ([], "states"),
        (small, "states .*Board"),
    ]:
        with pytest.raises(ValueError, match=message):
            env.reset(options={"states": states})
    with pytest.raises(ValueError, match="'state'"):
        env.reset(options={"state": [small]})


@pytest.mark.parametrize("seed", [-1, 1.5, "1"])
def test_bad_seed(seed: Any) -> None:
    with pytest.raises(ValueError, match=r"seed.* 0"):
        VectorBattlesnake(2, 2, 7, 7).reset(seed=seed)
