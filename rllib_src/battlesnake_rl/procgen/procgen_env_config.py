"""Options of the Procgen environment, with their default and valid values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_rl.procgen.procgen_games import GAMES

_DEFAULTS: dict[str, Any] = {
    "env_name": "coinrun",
    "num_levels": 0,
    "start_level": 0,
    "paint_vel_info": False,
    "use_generated_assets": False,
    "center_agent": True,
    "use_sequential_levels": False,
    "distribution_mode": "easy",
    "frame_stack": 1,
    "provider": "envpool",
}
"""All options with their default values.

* ``env_name``: the game (`procgen_games.GAMES`).
* ``num_levels``: number of levels; 0 for all levels, in which case Procgen ignores ``start_level``.
* ``start_level``: number of the first level.
* ``paint_vel_info``: paint the player's velocity into a corner, in some games.
* ``use_generated_assets``: use generated images instead of designed images.
* ``center_agent``: show the surroundings of the player instead of the whole level.
* ``use_sequential_levels``: after a completed level, continue with the next level in the same
  episode.
* ``distribution_mode``: easy, hard, or another mode of the game.
* ``frame_stack``: number of latest frames in an observation.
* ``provider``: implementation of the games: envpool, or procgen (the original package).
"""

_MAX_LEVEL = 2**31 - 1
"""Largest number of a level, and maximum number of levels."""

_PROVIDERS = ("envpool", "procgen")


def with_defaults(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``env_config`` with the default values of missing options.

    Raises:
        ValueError: If a key is unknown or a value is invalid; the message names the key, the value
            and the remedy.
    """
    check_keys("env_config", env_config, _DEFAULTS)
    values = _DEFAULTS | dict(env_config)
    _check_choice("env_name", values["env_name"], GAMES)
    _check_choice("distribution_mode", values["distribution_mode"], GAMES[values["env_name"]].modes)
    _check_choice("provider", values["provider"], _PROVIDERS)
    _check_range("num_levels", values["num_levels"], 0, _MAX_LEVEL)
    _check_range("start_level", values["start_level"], 0, _MAX_LEVEL - values["num_levels"])
    _check_range("frame_stack", values["frame_stack"], 1, 16)
    return values


def check_keys(name: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Check that the keys of a mapping are known, and that the values have the default types.

    Args:
        name: Name of the mapping, for the message.
        values: The mapping.
        defaults: Default values of all keys.

    Raises:
        ValueError: If a key is unknown or a value has another type.
    """
    for key, value in values.items():
        if key not in defaults:
            raise ValueError(unknown_name_message(f"key of {name}", key, defaults))
        kind = type(defaults[key])
        if type(value) is not kind:
            raise ValueError(
                f"{name}.{key} must be of type {kind.__name__}, got {value!r}; the default is "
                f"{defaults[key]!r}"
            )


def held_out_config(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the same game on held-out levels.

    The number of held-out levels equals the number of training levels. The held-out levels follow
    the training levels.

    Raises:
        ValueError: If the training uses all levels, so that no held-out levels exist.
    """
    values = with_defaults(env_config)
    if values["num_levels"] == 0:
        raise ValueError(
            "num_levels is 0, so training used all levels and none is held out; "
            "train on fewer levels, such as num_levels 200"
        )
    return values | {"start_level": values["start_level"] + values["num_levels"]}


def _check_choice(key: str, value: Any, choices: Any) -> None:
    """Raise a `ValueError` if ``value`` is not one of ``choices``."""
    if value not in choices:
        raise ValueError(unknown_name_message(key, value, choices))


def _check_range(key: str, value: int, minimum: int, maximum: int) -> None:
    """Raise a `ValueError` if ``value`` is outside [``minimum``, ``maximum``]."""
    if not minimum <= value <= maximum:
        raise ValueError(f"{key} must be between {minimum} and {maximum}, got {value}")
