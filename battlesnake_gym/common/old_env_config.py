"""Converters of environment options that version 0.1 stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OBSERVATION_NAMES = {"reach": "territory", "centred": "centered"}
_OPTION_NAMES = {
    "frames": "frame_stack",
    "food": "food_rng",
    "starts": "start_positions",
    "food_at": "food_positions",
}
_MASK_NAMES = {"forbidden": "fatal"}
_FOOD_RNG_NAMES = {"seeded": "official"}


def convert_observation(observation: Any) -> Any:
    """Convert an observation that version 0.1 stored to the current names.

    Args:
        observation: The stored name or dictionary; any other value is returned unchanged.

    Returns:
        A name or dictionary for `observations.get`.
    """
    if isinstance(observation, str):
        return _OBSERVATION_NAMES.get(observation, observation)
    if not isinstance(observation, Mapping):
        return observation
    converted = _rename_keys(observation)
    old_name = converted.get("name")
    if isinstance(old_name, str) and old_name in _OBSERVATION_NAMES:
        converted["name"] = _OBSERVATION_NAMES[old_name]
        if isinstance(planes := converted.get("planes"), list):
            converted["planes"] = [
                plane.replace("_reach", "_territory") if isinstance(plane, str) else plane
                for plane in planes
            ]
    return converted


def convert_env_config(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the environment options of version 0.1 to the current names and values.

    Args:
        env_config: The stored options. Options with current names stay unchanged.

    Returns:
        A new dictionary of options with the current names and values.
    """
    converted = _rename_keys(env_config)
    if "observation" in converted:
        converted["observation"] = convert_observation(converted["observation"])
    if isinstance(kind := converted.get("action_mask"), str):
        converted["action_mask"] = "+".join(_MASK_NAMES.get(name, name) for name in kind.split("+"))
    if isinstance(food_rng := converted.get("food_rng"), str):
        converted["food_rng"] = _FOOD_RNG_NAMES.get(food_rng, food_rng)
    return converted


def _rename_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    return {_OPTION_NAMES.get(name, name): value for name, value in options.items()}
