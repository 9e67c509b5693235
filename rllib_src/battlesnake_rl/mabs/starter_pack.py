"""Translation of hyperparameters of the SageMaker starter pack for Battlesnake.

The old names of renamed hyperparameters remain valid; a log line states the current name.
Hyperparameters without an equivalent are rejected; the message names an alternative.
``docs/how-to/move-from-the-starter-pack.md`` lists all hyperparameters of the starter pack.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from battlesnake_rl.mabs.envs.board_size_schedule import FIXED_SHAPE_OBSERVATION
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, HyperparameterError, parse_value
from sagemaker_rl.job.legacy_names import COMMON_RENAMED, LegacyNames

_RLLIB_SETTINGS_KEY = "additional_configs"
"""Hyperparameter of the starter pack that contains a dictionary of RLlib settings."""

_NUM_ENVS_KEY = CONFIG_PREFIX + "num_envs_per_env_runner"
"""Hyperparameter with the number of games per env runner."""

RENAMED_HYPERPARAMETERS = {
    **COMMON_RENAMED,
    CONFIG_PREFIX + "horizon": CONFIG_PREFIX + "env_config.max_turns",
    CONFIG_PREFIX + "clip_rewards": CONFIG_PREFIX + "env_config.clip_rewards",
    "use_heuristics_action_masks": "action_mask",
    "heuristics": "action_mask",
}
"""Current name of each renamed hyperparameter, by the starter pack's name."""

_PUBLISHED_NAMES = {
    "rl_cluster_type",
    *(CONFIG_PREFIX + name for name in ("num_cpus", "num_workers", "num_gpus")),
}
"""Hyperparameters that mark the published listings, which name no algorithm."""

_MASK_NAMES = {"banned_wall_hits": "wall", "banned_forbidden_moves": "neck"}
"""Action mask by name in the starter pack's list ``heuristics``.

All other names in that list are custom action masks.
"""

UNSUPPORTED_HINTS = {
    "rl.training.env": "every experiment plays battlesnake; leave it out",
    "rl.training.checkpoint_freq": "set checkpoint_minutes",
    CONFIG_PREFIX + "use_pytorch": "everything is PyTorch; leave it out",
    CONFIG_PREFIX + "framework": "everything is PyTorch; leave it out",
    CONFIG_PREFIX + "eager": "everything is PyTorch; leave it out",
    CONFIG_PREFIX + "model": f"set {CONFIG_PREFIX}model_config, or give --network FILE:CLASS",
    CONFIG_PREFIX + "multiagent": "set policy_sharing to per_seat or shared",
    CONFIG_PREFIX + "monitor": "the arena and `play --replay` record games; leave it out",
}
"""Alternative to each hyperparameter without an equivalent.

The keys are the starter pack's names.
"""


def translate_hyperparameters(
    given: dict[str, Any], environ: Mapping[str, str] = os.environ
) -> list[str]:
    """Translate the starter pack's hyperparameters to current names, in place.

    The published scripts trained DQN on one instance and APEX on several instances. If a
    hyperparameter of RLlib has its published name, and there is neither an algorithm nor an
    experiment, the same algorithm is set.

    >>> values = {"algorithm": "PPO", "rl.training.config.num_sgd_iter": 3}
    >>> _ = translate_hyperparameters(values)
    >>> values
    {'algorithm': 'PPO', 'rl.training.config.num_epochs': 3}

    Args:
        given: Hyperparameters by current or old name.
        environ: Environment variables, with the instances of a job.

    Returns:
        A message for each translated hyperparameter.

    Raises:
        HyperparameterError: If a name has no equivalent, or a value is set under two names.
    """
    former = {_RLLIB_SETTINGS_KEY, "iterate_map_size", *RENAMED_HYPERPARAMETERS, *UNSUPPORTED_HINTS}
    if not (former | _PUBLISHED_NAMES) & given.keys():
        return []
    for name, value in given.items():
        given[name] = parse_value(value) if isinstance(value, str) else value
    values = {name: value for name, value in given.items() if name != _RLLIB_SETTINGS_KEY}
    additional = given.get(_RLLIB_SETTINGS_KEY, {})
    if not isinstance(additional, Mapping):
        raise HyperparameterError(
            f"{_RLLIB_SETTINGS_KEY} must be a dictionary of RLlib settings, got {additional!r:.80}"
        )
    settings = {CONFIG_PREFIX + key: value for key, value in additional.items()}
    if twice := sorted(settings.keys() & values.keys()):
        raise HyperparameterError(
            f"{twice[0]} and {_RLLIB_SETTINGS_KEY} set the same value; set only one of them"
        )
    values |= settings
    named: dict[str, Any] = {}
    messages: list[str] = []
    if values.pop("iterate_map_size", False):
        named["iterate_map_size"] = True
        if "observation" not in values:
            named["observation"] = FIXED_SHAPE_OBSERVATION
            messages.append(
                f"iterate_map_size needs an observation of fixed shape: {FIXED_SHAPE_OBSERVATION}"
            )
    translated, renamed = _NAMES.translate(values)
    named |= translated
    messages += renamed
    if {_RLLIB_SETTINGS_KEY, "rl.training.run"} & given.keys() and named.get("algorithm") == "PPO":
        named["algorithm"] = "RLLIB_PPO"  # The starter pack used RLlib's PPO.
        messages.append("the starter pack's PPO is RLlib's PPO, which is now called RLLIB_PPO")
        # In the pack, a batch consists of fragments of single games, for any number of CPUs.
        if _RLLIB_SETTINGS_KEY in given:
            named.setdefault(_NUM_ENVS_KEY, 1)
            messages.append(
                f"each env runner plays one game, the starter pack's default: {_NUM_ENVS_KEY} is 1"
            )
    published = _PUBLISHED_NAMES & given.keys()
    if published and not {"algorithm", "experiment"} & named.keys():
        several = len(json.loads(environ.get("SM_HOSTS") or "[]")) > 1
        named["algorithm"] = "APEX" if several or "rl_cluster_type" in given else "DQN"
        messages.append(
            f"trains {named['algorithm']}, as the published scripts with {min(published)} did: DQN "
            "on one instance, APEX on several; set algorithm for another one"
        )
    given.clear()
    given |= named
    return messages


def _translate_value(name: str, value: Any) -> Any:
    """Return the current value of the starter pack's hyperparameter ``name``."""
    if name == "use_heuristics_action_masks":
        return "fatal" if value else "none"
    if name == "heuristics":
        return "+".join(_MASK_NAMES.get(kind, kind) for kind in value) or "none"
    return value


_NAMES = LegacyNames(RENAMED_HYPERPARAMETERS, UNSUPPORTED_HINTS, convert=_translate_value)
"""Translation of the starter pack's hyperparameters."""
