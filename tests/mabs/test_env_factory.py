"""Trainers read `EnvConfig` as environments do: each field is honoured, each mistake named."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from battlesnake_gym.config import EnvConfig
from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.battlesnake_launcher import (
    BattlesnakeHyperparameters,
    BattlesnakeLauncher,
    _hyperparameters_for,
)
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.multi_agent_env import BattlesnakeMultiAgentEnv
from battlesnake_rl.mabs.envs.training_env_config import ENV_CONFIG_DEFAULTS, env_options
from battlesnake_rl.mabs.settings.algorithm_settings import DQNSettings
from sagemaker_rl.job import hyperparameters
from tests.env_options import BASE, CASES, seen

pytestmark = pytest.mark.filterwarnings("default")

AS_THE_LAUNCHER_SAYS = {"num_snakes": "num_snakes", "width": "board_size", "height": "board_size"}


def launched(**options: Any) -> dict[str, Any]:
    """The ``env_config`` of a training for which ``options`` are given on the command line."""
    given = {}
    for field, value in options.items():
        name = AS_THE_LAUNCHER_SAYS.get(field, field)
        if name not in {one.name for one in fields(BattlesnakeHyperparameters)}:
            name = f"rl.training.config.env_config.{field}"
        given[name] = value
    cls = _hyperparameters_for(DQNSettings)
    plain, rest = cls.fill(given)
    config: Any = BattlesnakeLauncher().get_experiment_config(plain)
    hyperparameters.apply_overrides(config, rest)
    env_config: dict[str, Any] = config.env_config
    return env_config


MAKE: dict[str, Callable[..., Any]] = {
    "make_vector": lambda **options: make_vector_env(2, options),
    "MultiAgentEnv": lambda **options: BattlesnakeMultiAgentEnv(options)._games,
    "configure": lambda **options: make_vector_env(
        2, algorithms.configure("DQN", options).env_config
    ),
    "launcher": lambda **options: make_vector_env(2, launched(**options)),
}  # fmt: skip


@pytest.mark.parametrize("trainer", MAKE)
@pytest.mark.parametrize(("field", "options"), CASES)
def test_every_field_is_honoured(trainer: str, field: str, options: dict[str, Any]) -> None:
    assert seen(field, MAKE[trainer](**BASE | options)) == options[field]


@pytest.mark.parametrize("trainer", MAKE)
def test_a_wrong_name_is_refused_with_the_nearest(trainer: str) -> None:
    with pytest.raises(ValueError, match=r"(option|parameter) .*widht.*width"):
        MAKE[trainer](widht=7)


def test_a_learner_is_told_of_the_stacked_turns() -> None:
    given = {"observation": "territory", "frame_stack": 3}
    assert env_options(given).observation == {"name": "territory", "frame_stack": 3}
    assert env_options(given).observation_encoder.frame_stack == 3
    plane = env_options({"observation": "territory"}).head_plane
    assert env_options(given).head_plane == plane is not None
    config = algorithms.configure("DQN", given)
    assert config.model_config["head_plane"] == plane


def test_the_launchers_defaults_are_the_environments() -> None:
    assert launched() == ENV_CONFIG_DEFAULTS == vars(env_options({}))
    training = {"curriculum", "iterate_map_size", "clip_rewards", "opponents"}
    assert set(ENV_CONFIG_DEFAULTS) == {one.name for one in fields(EnvConfig)} | training


@pytest.mark.parametrize(("name", "counts"), [("RLLIB_PPO", [2, 4]), ("DISTIL", [])])
def test_lists_of_snakes_are_refused_where_no_games_take_turns(
    name: str, counts: list[int]
) -> None:
    with pytest.raises(ValueError, match=r"num_snakes.* PPO.* DISTIL"):
        algorithms.configure(name, {"num_snakes": counts})


def test_smaller_games_use_the_first_rewards() -> None:
    games = {"num_snakes": [2, 3], "rewards": ["winning", {"ate_food": 1}, "survival"]}
    for count, seats in ((1, 2), (2, 3)):
        rewards: Any = make_vector_env(count, games).rewards
        assert len(rewards.by_seat) == seats
        assert rewards.by_seat[1].weights == {"ate_food": 1.0}
    with pytest.raises(ValueError, match="2 elements for 3 seats"):
        make_vector_env(2, games | {"rewards": ["winning", "survival"]})


@pytest.mark.parametrize("width", [[7], [7, 11], None])
def test_training_games_share_one_board_size(width: object) -> None:
    with pytest.raises(ValueError, match=r"width must be one integer.* curriculum"):
        algorithms.configure("DISTIL", {"width": width})


def test_the_view_radius_reaches_the_games() -> None:
    given = launched(view_radius=5, settings={"minimum_food": 3})
    settings = make_vector_env(2, given).games.game.settings
    assert (settings.view_radius, settings.minimum_food) == (5, 3)
    assert env_options(launched(view_radius=0)).game.settings.view_radius == 0
    with pytest.raises(hyperparameters.HyperparameterError, match=r"view_radius is 5.* 3; omit"):
        launched(view_radius=5, settings={"view_radius": 3})
