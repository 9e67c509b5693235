"""Construction of Battlesnake environments from an ``env_config``.

Configurations and checkpoints contain an ``env_config``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_gym.config import TRAINING_DEFAULTS, EnvConfig, IntPerGame, check_option_names
from battlesnake_gym.env.opponent_names import POLICY_PREFIX, check_fractions, seat_fractions
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.seated_opponents import SampledOpponents
from battlesnake_gym.env.seated_policy import ActFn
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.mdp import observations
from battlesnake_rl.mabs.envs.board_size_schedule import CYCLED_BOARD_SIZES, FIXED_SHAPE_OBSERVATION
from battlesnake_rl.mabs.policy import policy_loader
from battlesnake_rl.mabs.policy.policy_loader import greedy_policy

ENV_NAME = "battlesnake"
"""Name of the environment in RLlib's registry."""

ENV_CONFIG_DEFAULTS: dict[str, Any] = {
    **{name: value for name, value in vars(TRAINING_DEFAULTS).items() if name != "frame_stack"},
    "settings": {},
    "curriculum": [],
    "iterate_map_size": False,
    "clip_rewards": False,
    "opponents": {},
}
"""Default values of an ``env_config``: fields of `EnvConfig`, and the keys below.

* ``curriculum``: ``[[env_steps, size], ...]``; each board size applies from ``env_steps`` on. With
  an empty list, the board size is always ``width`` x ``height``.
* ``iterate_map_size``: cycle through board sizes 7, 11 and 19 (`board_size_schedule`).
* ``clip_rewards``: RLlib's own algorithms receive the sign of each reward (starter pack).
* ``opponents``: fraction of seats by opponent, or a list of opponents
  (`battlesnake_gym.env.opponent_names`).

`with_defaults` merges the additional key ``frame_stack`` into ``observation``.
"""


def make_vector_env(
    num_games: int, env_config: Mapping[str, Any], board_size: int | None = None
) -> VectorBattlesnake:
    """Build a vector environment with ``num_games`` games.

    Args:
        num_games: Number of games.
        env_config: Options; missing keys have the values of `ENV_CONFIG_DEFAULTS`. If
            ``num_snakes`` is a list, games cycle through its values.
        board_size: Width and height of all boards except the last board, in cells. The last board
            retains its full size, because the largest board determines the observation's shape.

    Raises:
        ValueError: If a key is unknown or the environment rejects a value.
    """
    options = env_options(env_config)
    options = replace(options, num_snakes=cycle_num_snakes(options.num_snakes, num_games))
    if board_size is not None:
        others, board = [board_size] * (num_games - 1), with_defaults(env_config)
        options = replace(
            options, width=[*others, board["width"]], height=[*others, board["height"]]
        )
    return VectorBattlesnake.from_config(options, num_games)


def sample_opponents(
    vector: VectorBattlesnake,
    fractions: Mapping[str, float],
    random: np.random.Generator,
    past_selves: PastSelves,
) -> SampledOpponents:
    """Return the opponents of training games, without seats.

    Args:
        vector: The games.
        fractions: Fraction of seats by opponent, as in `SampledOpponents`. A name with
            `POLICY_PREFIX` is the path of a frozen policy (`policy_loader.load_score_fn`).
        random: Random generator for opponents and seats.
        past_selves: Past selves of the learner.

    Raises:
        ValueError: If the fractions are invalid or a policy does not fit the games.
    """
    frozen = {
        name: _load_frozen_policy(name, vector)
        for name in fractions
        if name.startswith(POLICY_PREFIX)
    }
    return SampledOpponents(vector, fractions, random, past_selves, frozen)


def _load_frozen_policy(name: str, vector: VectorBattlesnake) -> ActFn:
    """Load a frozen policy, which must have the observation of the games."""
    values, games = policy_loader.load_score_fn(Path(name.removeprefix(POLICY_PREFIX)))
    observation = EnvConfig(
        observation=games["observation"], frame_stack=games.get("frame_stack")
    ).observation_encoder
    seen = observation.to_dict(), observation.shape(games["width"], games["height"])
    shown = vector.observation.to_dict(), vector.single_observation_space.shape
    if seen != shown:
        raise ValueError(
            f"the opponent {name!r} has the observation {seen[0]} of shape {seen[1]}, "
            f"but the games have {shown[0]} of shape {shown[1]}; "
            "use a policy with the same observation and board size"
        )
    return greedy_policy(values)


def observation_bytes(env_config: Mapping[str, Any]) -> int:
    """Return the size of one observation in bytes."""
    space = make_vector_env(1, env_config).single_observation_space
    return math.prod(space.shape) * np.dtype(space.dtype).itemsize


def cycle_num_snakes(num_snakes: IntPerGame, num_games: int) -> IntPerGame:
    """Return the number of snakes in each game, cycling through ``num_snakes``.

    A single number applies to all games and is returned unchanged.

    >>> cycle_num_snakes([2, 4], 3).tolist(), cycle_num_snakes(2, 3)
    ([2, 4, 2], 2)
    """
    return (
        num_snakes if isinstance(num_snakes, int) else np.resize(np.asarray(num_snakes), num_games)
    )


def with_defaults(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``env_config`` with default values for missing keys.

    The function merges the key ``frame_stack`` into ``observation``.

    >>> with_defaults({"frame_stack": 2})["observation"]
    {'name': 'planes', 'frame_stack': 2}

    Raises:
        ValueError: If a key is unknown.
    """
    check_option_names(env_config, ENV_CONFIG_DEFAULTS)
    values = ENV_CONFIG_DEFAULTS | dict(env_config)
    values["opponents"] = seat_fractions(values["opponents"])
    frame_stack, seen = values.pop("frame_stack", None), values["observation"]
    if frame_stack is not None:
        named = {"name": seen} if isinstance(seen, str) else observations.get(seen).to_dict()
        values["observation"] = named | {"frame_stack": frame_stack}
    return values


def env_options(env_config: Mapping[str, Any]) -> EnvConfig:
    """Check the training options and return the options of the games.

    Raises:
        ValueError: If a key is unknown, or if the curriculum or the opponents are invalid.
    """
    values = with_defaults(env_config)
    _check_curriculum(values.pop("curriculum"), min(values["width"], values["height"]))
    check_fractions(values.pop("opponents"))
    values.pop("clip_rewards")
    if values.pop("iterate_map_size"):
        _check_iterate_map_size(values["observation"], env_config.get("curriculum"))
    return EnvConfig.from_options(values)


def head_plane_index(env_config: Mapping[str, Any]) -> int | None:
    """Return the index of the plane ``own_body``, or None for no such plane.

    The maximum of this plane is at the own head.
    """
    planes = observations.get(with_defaults(env_config)["observation"]).planes
    return planes.index("own_body") if "own_body" in planes else None


def curriculum_board_size(env_config: Mapping[str, Any], env_steps: int) -> int | None:
    """Return the curriculum's board size after ``env_steps`` env steps.

    If there is no curriculum, the function returns None.
    """
    sizes = [size for start, size in env_config.get("curriculum", []) if start <= env_steps]
    return sizes[-1] if sizes else None


def board_sizes(env_config: Mapping[str, Any]) -> list[list[int]]:
    """Return [width, height] of each board size used in training, smallest first."""
    sizes = {(size, size) for _, size in env_config.get("curriculum", [])}
    if env_config.get("iterate_map_size"):
        sizes = {(size, size) for size in CYCLED_BOARD_SIZES}
    return [list(size) for size in sorted({*sizes, (env_config["width"], env_config["height"])})]


def _check_iterate_map_size(observation: Any, curriculum: Any) -> None:
    """Check that ``iterate_map_size`` is compatible with the other options.

    Raises:
        ValueError: If the observation or the curriculum is incompatible.
    """
    seen = observations.get(observation)
    if len({seen.shape(size, size) for size in CYCLED_BOARD_SIZES}) > 1:
        raise ValueError(
            f"iterate_map_size needs an observation of fixed shape, such as "
            f"{FIXED_SHAPE_OBSERVATION}, got {seen.name}"
        )
    if curriculum:
        raise ValueError(
            "iterate_map_size and curriculum both set the board size; set only one option"
        )


def _check_curriculum(curriculum: Any, max_size: int) -> None:
    """Check the entries of a curriculum.

    Raises:
        ValueError: If an entry is invalid or a board is larger than ``max_size`` cells.
    """
    try:
        steps, sizes = zip(*curriculum, strict=True) if curriculum else ((0,), (1,))
        fits = steps[0] == 0 and list(steps) == sorted(steps) and max(sizes) <= max_size
        if fits and all(type(number) is int and number >= 0 for number in (*steps, *sizes)):
            return
    except (TypeError, ValueError):
        pass
    raise ValueError(
        "curriculum must be a list of [env_steps, size] in ascending order, starting at 0, with "
        f"sizes of at most {max_size} (board_size), such as [[0, 7], [500000, 11]]; "
        f"got {curriculum!r}"
    )
