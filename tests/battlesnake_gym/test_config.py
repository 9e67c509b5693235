"""Every environment uses every field of `EnvConfig`, and each default is defined once."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
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
from battlesnake_gym.config import TRAINING_DEFAULTS, EnvConfig
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv
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
        *(
            ({name: 5}, f"{name} must be .* got 5")
            for name in ("observation", "rewards", "action_mask", "settings")
        ),
        ({"settings": {"minimum_food": True}}, r"minimum_food.* True"),
    ],
    ids=str,
)
def test_start_cells_and_settings_are_checked(bad: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"num_snakes": 2, "width": 7, "height": 5}
    with pytest.raises(ValueError, match=message):
        VectorBattlesnake.from_config(EnvConfig(**{**options, **bad}), 2)


ROOT = Path(__file__).parents[2]
READERS = ("battlesnake_gym", "rllib_src/battlesnake_rl/mabs")
"""Packages that create environments."""

ALSO_CALLED = {"num_agents": "num_snakes", "map_size": "width", "size": "width"}
"""Names of the launcher and the commands for fields of `EnvConfig`."""


def written_defaults(tree: ast.AST) -> Iterator[tuple[str, object]]:
    """All names to which a module gives a constant default, as an argument or in a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = node.value
            if isinstance(value, ast.Call) and value.args:  # option("standard", ...)
                value = value.args[0]
            yield from _constant(node.target.id, value)
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            defaults = [None] * (len(positional) - len(node.defaults)) + node.defaults
            for argument, value in zip(
                [*positional, *node.kwonlyargs], [*defaults, *node.kw_defaults], strict=True
            ):
                yield from _constant(argument.arg, value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield from _constant(str(key.value), value)
        elif isinstance(node, ast.Call):
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            if node.args and isinstance(node.args[0], ast.Constant) and "default" in named:
                yield from _constant(str(node.args[0].value).lstrip("-"), named["default"])
            for name, value in named.items():
                yield from _constant(name or "", value)


def _constant(name: str, value: ast.AST | None) -> Iterator[tuple[str, object]]:
    if isinstance(value, ast.Constant):
        yield name.replace("-", "_"), value.value


def test_each_default_is_written_in_one_place() -> None:
    """The rules define the ruleset, the map and the size; `config` defines all others."""
    wanted = {
        ("num_snakes", EnvConfig.num_snakes),
        ("ruleset", EnvConfig.ruleset),
        ("map", EnvConfig.map),
        ("rewards", EnvConfig.rewards),
        ("rewards", TRAINING_DEFAULTS.rewards),
        ("max_turns", TRAINING_DEFAULTS.max_turns),
        ("action_mask", EnvConfig.action_mask),
        ("food_rng", EnvConfig.food_rng),
    }
    nowhere = {(name, getattr(EnvConfig, name)) for name in ("width", "height", "observation")}
    found: dict[tuple[str, object], list[str]] = {default: [] for default in wanted | nowhere}
    for package in READERS:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, value in written_defaults(ast.parse(path.read_text(encoding="utf-8"))):
                default = ALSO_CALLED.get(name, name), value
                if default in found and path.name not in ("exit.py", "exit_self_play.py"):
                    found[default].append(f"{path.relative_to(ROOT)}: {name}={value!r}")
    assert {default: places for default, places in found.items() if len(places) > 1} == {}
    assert {default for default, places in found.items() if not places} == nowhere
