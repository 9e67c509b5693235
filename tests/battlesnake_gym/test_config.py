"""Every environment uses every field of `EnvConfig`, and rejects what none has."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest

from battlesnake_gym import (
    BattlesnakeEnv,
    SelfPlayVectorEnv,
    VectorBattlesnake,
    parallel_env,
)
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv
from battlesnake_gym.rules import Settings
from tests.env_options import BASE, CASES, seen

NAME = "battlesnake_gym:Battlesnake-v0"
OUTSIDE = [[7, 1], [-1, 1], [1, 5], [1, -1]]


def make_vec(**options: Any) -> Any:
    return gymnasium.make_vec(NAME, 2, vectorization_mode="vector_entry_point", **options)


MAKE: dict[str, Callable[..., Any]] = {
    "VectorBattlesnake": lambda **options: VectorBattlesnake(2, **options),
    "VectorBattlesnake.from_config": lambda **options: VectorBattlesnake.from_config(
        EnvConfig.from_options(options), 2
    ),
    "SelfPlayVectorEnv": lambda **options: SelfPlayVectorEnv(2, **options),
    "BattlesnakeVectorEnv": lambda **options: BattlesnakeVectorEnv(2, **options),
    "gymnasium.make_vec": make_vec,
    "BattlesnakeEnv": BattlesnakeEnv,
    "gymnasium.make": lambda **options: gymnasium.make(NAME, **options).unwrapped,
    "parallel_env": parallel_env,
}


def games_of(environment: Any) -> VectorBattlesnake:
    """The games of an environment."""
    if isinstance(environment, VectorBattlesnake):
        return environment
    games: VectorBattlesnake = (
        environment.games if hasattr(environment, "games") else environment._game.vector
    )
    return games


@pytest.mark.parametrize("environment", MAKE)
@pytest.mark.parametrize(("field", "options"), CASES)
def test_every_field_has_an_effect(environment: str, field: str, options: dict[str, Any]) -> None:
    made = MAKE[environment](**BASE | options)
    assert seen(field, games_of(made)) == options[field]


def test_every_field_is_tested_with_a_value_that_is_no_default() -> None:
    assert {field for field, _ in CASES} == {field.name for field in fields(EnvConfig)}
    usual = VectorBattlesnake(2, **BASE)
    for field, options in CASES:
        if field != "food_rng":  # The cases contain both values.
            assert seen(field, usual) != options[field]


@pytest.mark.parametrize("environment", MAKE)
def test_an_unknown_name_is_rejected_with_the_nearest_name(environment: str) -> None:
    with pytest.raises(ValueError, match=r"'widht'.* width"):
        MAKE[environment](widht=7)
    with pytest.raises(ValueError, match=r"'num_snake'.* num_snakes"):
        MAKE[environment](num_snake=2)


@pytest.mark.parametrize(
    ("make", "wrong", "right"),
    [
        (BattlesnakeEnv, "oponents", "opponents"),
        (BattlesnakeEnv, "rendermode", "render_mode"),
        (parallel_env, "render_mod", "render_mode"),
        (BattlesnakeVectorEnv, "num_env", "num_envs"),
        (BattlesnakeVectorEnv, "opponent", "opponents"),
        (SelfPlayVectorEnv, "autoreset", "autoreset_mode"),
        (SelfPlayVectorEnv, "num_gamse", "num_games"),
    ],
)
def test_an_environments_own_arguments_are_suggested(
    make: Callable[..., Any], wrong: str, right: str
) -> None:
    with pytest.raises(ValueError, match=rf"'{wrong}'.* {right}\b"):
        make(**{wrong: None})


def test_a_number_of_games_is_named_as_gymnasium_names_it() -> None:
    with pytest.raises(ValueError, match=r"num_games or num_envs must be .* got 0"):
        gymnasium.make_vec(NAME, num_envs=0, opponents=["hungry"])


def test_seats_have_their_own_rewards_and_start_cells() -> None:
    options: dict[str, Any] = {"num_snakes": 2, "width": 7, "height": 5}
    where: dict[str, Any] = {
        "start_positions": [[0, 0], [6, 4]],
        "food_positions": [[0, 1], [6, 3]],
    }
    rewards = [{"ate_food": 1.0}, {"ate_food": 5.0, "another_turn": 0.5}]
    games = VectorBattlesnake.from_config(EnvConfig(**options, **where, rewards=rewards), 3)
    games.reset(seed=1)
    assert games.games.heads.tolist() == [[[0, 0], [6, 4]]] * 3
    assert games.games.state(0).food == [(0, 1), (6, 3)]
    _, seen, *_ = games.step(np.array([[0, 1]] * 3))
    np.testing.assert_array_equal(seen, [[1.0, 5.5]] * 3)


@pytest.mark.parametrize(
    ("game_map", "varies"), [("standard", "food"), ("healing_pools", "hazards")]
)
@pytest.mark.parametrize("food_rng", ["fast", "official"])
def test_the_seed_decides_the_food_and_hazards_of_fixed_start_cells(
    food_rng: str, game_map: str, varies: str
) -> None:
    size: dict[str, Any] = {"num_snakes": 2, "width": 11, "height": 11}
    where: dict[str, Any] = {"map": game_map, "start_positions": [[0, 0], [2, 2]]}
    games = VectorBattlesnake.from_config(EnvConfig(**size, **where, food_rng=food_rng), 20)
    starts = []
    for seed in (1, 1, 2):
        games.reset(seed=seed)
        starts.append([games.games.state(game) for game in range(20)])
    assert starts[0] == starts[1] != starts[2]
    assert len({str(getattr(state, varies)) for state in starts[0]}) > 1
    for state in starts[0]:
        assert [snake.body for snake in state.snakes] == [[(0, 0)] * 3, [(2, 2)] * 3]
        assert not {(0, 0), (2, 2)} & {*state.food}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        *(({"start_positions": [cell, [2, 2]]}, "7x5") for cell in OUTSIDE),
        ({"food_positions": [[1, 1]]}, "food_positions requires start_positions"),
        (
            {"start_positions": [[1, 1], [2, 2]], "food_positions": [[1, 1]]},
            r"\(1, 1\)",
        ),
        ({"start_positions": [[1, 1], [1, 1]]}, "start_positions"),
        (
            {"start_positions": [[1, 1], [2, 2]], "food_positions": [[3, 3], [3, 3]]},
            "food_positions",
        ),
        ({"start_positions": [[1, 1]]}, r"start_positions.* 1.* 2"),
        (
            {"start_positions": [[1, 1], [2, 2]], "width": [7, 5]},
            "start_positions",
        ),
        ({"start_positions": 3}, "cells"),
        ({"start_positions": [[1.7, 1], [2, 2]]}, "cells"),
        ({"num_snakes": "2"}, r"num_snakes.* '2'"),
        ({"num_snakes": 0}, r"num_snakes.* 1.* 16.* 0"),
        ({"height": [7, 7, 7]}, "height"),
        *(
            ({name: 5}, f"{name} must be .* got 5")
            for name in ("observation", "rewards", "action_mask", "settings")
        ),
        ({"settings": {"minimum_food": True}}, r"minimum_food.* True"),
        ({"settings": {"minimum_food": 1.5}}, r"minimum_food.* 1.5"),
        ({"settings": {"food": 3}}, "'food'"),
        *(
            ({"settings": {"shrink_every_n_turns": 5}, "num_snakes": count}, "map standard; omit")
            for count in (2, [2, 3])
        ),
        *(({"max_turns": n}, rf"max_turns must .* 1.* {n}") for n in (0, 1.5, True)),
        ({"ruleset": "standrad"}, r"'standrad'.* standard"),
        ({"map": "stand"}, r"'stand'.* standard"),
        ({"observation": "plane"}, "'plane'"),
        ({"rewards": "surviving"}, "surviving"),
        ({"rewards": {"wins": 1}}, "'wins'"),
        ({"action_mask": "all"}, "'all'"),
        ({"ruleset": ["royale"]}, "ruleset .*royale"),
        ({"map": {"royale": 1}}, "map .*royale"),
        ({"observation": {"name": ["planes"]}}, "observation .*planes"),
        ({"rewards": {"won": 10**309}}, "'won' must be finite"),
        ({"rewards": {"won": 1e300}}, "'won' must be finite"),
    ],
    ids=str,
)
def test_start_cells_and_settings_are_checked(bad: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"num_snakes": 2, "width": 7, "height": 5}
    with pytest.raises(ValueError, match=message):
        VectorBattlesnake.from_config(EnvConfig(**{**options, **bad}), 2)


def test_settings_of_a_parsed_game_and_of_later_hazards_are_accepted() -> None:
    parsed = Settings(shrink_every_n_turns=5, hazard_damage_per_turn=3)
    for settings in (parsed, {"hazard_damage_per_turn": 3}):
        VectorBattlesnake(2, settings=settings)
