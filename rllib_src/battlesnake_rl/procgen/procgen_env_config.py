"""The ``env_config`` of an experiment: every key, its default, and what it may be."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

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
"""Every key and its default.

``env_name``: the game (`games.GAMES`). ``num_levels``: how many levels there are, 0 for all of them
(then ``start_level`` means nothing, as in Procgen itself); ``start_level``: the first one's number.
``paint_vel_info``: paint the speed of the player into a corner, in some games.
``use_generated_assets``: drawn pictures instead of designed ones. ``center_agent``: show what is
around the player rather than the whole level. ``use_sequential_levels``: a completed level leads to
the next one within the same episode. ``distribution_mode``: easy, hard, or one of the game's own.
``frame_stack``: how many of the last frames are seen at once. ``provider``: who computes the games,
which can only be envpool.
"""

_MAX_LEVEL = 2**31 - 1
_PROVIDERS = ("envpool",)


def complete(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """All keys of `_DEFAULTS`, with the values of ``env_config`` where it has them.

    Raises:
        ValueError: an unknown key or an impossible value, naming key, value and remedy.
    """
    for key in env_config:
        if key not in _DEFAULTS:
            nearest = difflib.get_close_matches(key, _DEFAULTS, n=1, cutoff=0.0)[0]
            raise ValueError(
                f"env_config has no key {key!r}; did you mean {nearest!r}? "
                f"Its keys are {', '.join(_DEFAULTS)}"
            )
    values = _DEFAULTS | dict(env_config)
    for key, default in _DEFAULTS.items():
        if type(values[key]) is not type(default):
            raise ValueError(
                f"{key} must be of type {type(default).__name__}, got {values[key]!r}; "
                f"the default is {default!r}"
            )
    _check_choice("env_name", values["env_name"], GAMES)
    _check_choice("distribution_mode", values["distribution_mode"], GAMES[values["env_name"]].modes)
    _check_choice("provider", values["provider"], _PROVIDERS)
    _check_range("num_levels", values["num_levels"], 0, _MAX_LEVEL)
    _check_range("start_level", values["start_level"], 0, _MAX_LEVEL - values["num_levels"])
    _check_range("frame_stack", values["frame_stack"], 1, 16)
    return values


def held_out(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """The same game on levels that ``env_config`` does not have: as many, right after them.

    Raises:
        ValueError: there are none, since ``env_config`` has all levels.
    """
    values = complete(env_config)
    if values["num_levels"] == 0:
        raise ValueError(
            "num_levels is 0, so training saw all levels and none is held out; "
            "train on some, such as num_levels 200"
        )
    return values | {"start_level": values["start_level"] + values["num_levels"]}


def _check_choice(key: str, value: Any, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{key} must be one of {' '.join(choices)}, got {value!r}")


def _check_range(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{key} must be between {least} and {most}, got {value}")
