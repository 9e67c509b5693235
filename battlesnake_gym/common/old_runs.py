"""Converters of names in the run directories and checkpoints of version 0.1.

Each function receives the content of a file and returns that content with the current names.
Content that already has the current names is returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

_CONFIG_PREFIX = "rl.training.config."

_HYPERPARAMETER_NAMES = {
    "num_agents": "num_snakes",
    "map_size": "board_size",
    "num_workers": "num_env_runners",
    "timesteps": "env_steps",
    "allow_idle": "allow_idle_instances",
    "allow_slow_rules": "allow_python_engine",
    "rl_join_minutes": "rl_join_timeout_minutes",
    "policies": "policy_sharing",
}

_ALGORITHM_OPTION_NAMES = {
    "symmetries": "symmetry_augmentation",
    "ladder_share": "ladder_cpu_fraction",
    "epsilon_ladder": "epsilon_per_game",
    "lag": "async_sampling",
    "start_coeff": "kickstart_coeff",
    "model_config.glimpse": "model_config.head_crop",
    "model_config.width": "model_config.hidden_size",
}

_DISTIL_OPTION_NAMES = {
    "positions": "expert_nodes",
    "led_by_search": "expert_action_fraction",
    "in_memory": "label_buffer_size",
    "epochs": "max_replay_ratio",
}

_EXIT_OPTION_NAMES = {
    "moves": "moves_per_iteration",
    "fragment": "moves_per_fragment",
    "deep_from": "deep_search_after_moves",
    "in_memory": "buffer_iterations",
    "first_in_memory": "bootstrap_buffer_iterations",
    "first_epochs": "bootstrap_epochs",
    "first_lr": "bootstrap_lr",
    "match_positions": "match_nodes",
    "ladder_positions": "ladder_nodes",
}

NETWORK_SETTING_NAMES = {"width": "hidden_size", "glimpse": "head_crop"}

_IDENTITY_KEYS = {"board size": "board_size", "observation shape": "observation_shape"}

_SELF_PLAY_REPLACEMENTS = (
    ("SelfPlaySetup(", "SelfPlaySettings("),
    (" snakes=", " num_snakes="),
    (" opening=", " random_opening_turns="),
    (" random_moves=", " random_move_fraction="),
)

MEASUREMENT_KEYS = {"beyond": "out_of_range", "low": "ci_low", "high": "ci_high"}
"""Current keys of a measurement in ``strength.json``."""

EXIT_STATE_KEYS = {"promoted": "promotions", "memory": "sample_buffer", "rounds": "iterations"}
"""Current keys in ``state.json`` and ``progress.json`` of an EXIT checkpoint."""

_RUN_FIELD_NAMES = {
    "began": "started_at",
    "ended": "ended_at",
    "why": "reason",
    "plan": "stop_conditions",
}

_CSV_COLUMN_NAMES = {
    "ladder_points": "ladder_score",
    "ladder_share": "ladder_cpu_fraction",
    "promoted": "promotions",
}


def rename_keys(values: Mapping[str, Any], current_names: Mapping[str, str]) -> dict[str, Any]:
    """Return ``values`` with the current names of the keys that ``current_names`` contains."""
    return {current_names.get(name, name): value for name, value in values.items()}


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
    converted = rename_keys(observation, _OPTION_NAMES)
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
    converted = rename_keys(env_config, _OPTION_NAMES)
    if "observation" in converted:
        converted["observation"] = convert_observation(converted["observation"])
    if isinstance(kind := converted.get("action_mask"), str):
        converted["action_mask"] = "+".join(_MASK_NAMES.get(name, name) for name in kind.split("+"))
    if isinstance(food_rng := converted.get("food_rng"), str):
        converted["food_rng"] = _FOOD_RNG_NAMES.get(food_rng, food_rng)
    return converted


def convert_hyperparameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert old hyperparameter names to the current names.

    Checkpoints, ``run.json`` and experiment files of old runs contain the old names.
    """
    options = dict(_ALGORITHM_OPTION_NAMES)
    if values.get("algorithm") == "DISTIL":
        options |= _DISTIL_OPTION_NAMES
    elif values.get("algorithm") == "EXIT":
        options |= _EXIT_OPTION_NAMES
    plain: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for name, value in values.items():
        if not name.startswith(_CONFIG_PREFIX):
            plain[_HYPERPARAMETER_NAMES.get(name, name)] = value
            continue
        option = name.removeprefix(_CONFIG_PREFIX)
        if option.startswith("env_config."):
            ((key, value),) = convert_env_config({option.partition(".")[2]: value}).items()
            option = f"env_config.{key}"
        config[_CONFIG_PREFIX + options.get(option, option)] = value
    if plain.get("policy_sharing") == "each":
        plain["policy_sharing"] = "per_seat"
    return {**convert_env_config(plain), **config}


def convert_identity(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Convert old names in the identity of a run to the current names.

    The identity contains the settings that a resumed run must share with the checkpoint.
    """
    converted = rename_keys(identity, _IDENTITY_KEYS)
    if converted.pop("policies", None):
        converted["policy_sharing"] = "per_seat"
    if "observation" in converted:
        converted["observation"] = convert_observation(converted["observation"])
    if isinstance(network := converted.get("network"), Mapping):
        converted["network"] = rename_keys(network, NETWORK_SETTING_NAMES)
    if converted.get("algorithm") == "EXIT" and "games" in converted:
        converted["games"] = [_convert_self_play(game) for game in converted["games"]]
    return converted


def convert_checkpoint_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Convert old names in the metadata file of a checkpoint, or in the content of ``run.json``."""
    converted = rename_keys(metadata, _RUN_FIELD_NAMES)
    for name, convert in _CONVERTERS.items():
        if isinstance(value := converted.get(name), Mapping):
            converted[name] = convert(value)
    return converted


def convert_csv_column(name: str) -> str:
    """Convert an old column name of ``progress.csv`` to the current name.

    >>> convert_csv_column("win_rate_hungry_low"), convert_csv_column("elo")
    ('score_hungry_low', 'elo')
    """
    if name.startswith("win_rate_"):
        return "score_" + name.removeprefix("win_rate_")
    return _CSV_COLUMN_NAMES.get(name, name)


def _convert_self_play(game: str) -> str:
    for old, new in _SELF_PLAY_REPLACEMENTS:
        game = game.replace(old, new)
    return game


_CONVERTERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "identity": convert_identity,
    "env_config": convert_env_config,
    "hyperparameters": convert_hyperparameters,
    "settings": convert_hyperparameters,
    "stop_conditions": lambda conditions: rename_keys(conditions, _HYPERPARAMETER_NAMES),
}
"""Converters of the objects in a checkpoint's metadata and in ``run.json``, by name."""
