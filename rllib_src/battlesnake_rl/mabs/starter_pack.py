"""Hyperparameters as the SageMaker starter pack for Battlesnake and its posts spell them.

What only has another name today is taken under that name, and a line says so; what has no
counterpart is refused with what to write instead. ``docs/starter-pack.md`` has the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from battlesnake_rl.mabs.envs.board_size_schedule import OBSERVATION
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, LEGACY_RLLIB_NAMES, HyperparameterError

_ADDITIONAL_CONFIGS = "additional_configs"
"""A dictionary of RLlib's settings."""

_NUM_ENVS_KEY = CONFIG_PREFIX + "num_envs_per_env_runner"

RENAMED_HYPERPARAMETERS = {
    "rl.training.run": "algorithm",
    "rl.training.stop.training_iteration": "num_iters",
    "rl.training.stop.timesteps_total": "env_steps",
    **{CONFIG_PREFIX + old: CONFIG_PREFIX + new for old, new in LEGACY_RLLIB_NAMES.items()},
    CONFIG_PREFIX + "num_workers": "num_env_runners",
    CONFIG_PREFIX + "num_cpus": "num_env_runners",
    CONFIG_PREFIX + "horizon": CONFIG_PREFIX + "env_config.max_turns",
    CONFIG_PREFIX + "seed": "seed",
    CONFIG_PREFIX + "clip_rewards": CONFIG_PREFIX + "env_config.clip_rewards",
    "use_heuristics_action_masks": "action_mask",
    "heuristics": "action_mask",
}
"""Names there, and the same here."""

_MASK_NAMES = {"banned_wall_hits": "wall", "banned_forbidden_moves": "neck"}
"""What its notebook on masks names in ``heuristics``; any other is a mask of your own."""

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
"""Names without a counterpart, and what to do."""


def translate_hyperparameters(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """``given`` with today's names, and a line for each that had another.

    Raises:
        HyperparameterError: a name without a counterpart, or two names of the same.

    >>> translate_hyperparameters({"rl.training.config.num_sgd_iter": 3})[0]
    {'rl.training.config.num_epochs': 3}
    """
    values = {name: value for name, value in given.items() if name != _ADDITIONAL_CONFIGS}
    values |= {CONFIG_PREFIX + key: value for key, value in _additional(given).items()}
    named: dict[str, Any] = {}
    said: list[str] = []
    if values.pop("iterate_map_size", False):
        named["iterate_map_size"] = True
        if "observation" not in values:
            named["observation"] = OBSERVATION
            said.append(f"iterate_map_size needs an observation of one size: {OBSERVATION}")
    for name, value in values.items():
        if name in UNSUPPORTED_HINTS:
            raise HyperparameterError(f"{name} has no counterpart; {UNSUPPORTED_HINTS[name]}")
        today = RENAMED_HYPERPARAMETERS.get(name, name)
        if today in named or (today != name and today in values):
            raise HyperparameterError(f"{name} says what {today} says; give one of the two")
        named[today] = _value(name, value)
        if today != name:
            said.append(f"{name} is {today} today: {named[today]}")
    if {_ADDITIONAL_CONFIGS, "rl.training.run"} & given.keys() and named.get("algorithm") == "PPO":
        named["algorithm"] = "RLLIB_PPO"  # the pack's was RLlib's
        said.append("PPO of RLlib is RLLIB_PPO today; PPO is ours")
        if (
            _ADDITIONAL_CONFIGS in given
        ):  # whose batch is made up of such fragments, by any number of CPUs
            named.setdefault(_NUM_ENVS_KEY, 1)
            said.append(f"a runner plays one game, as it did in the pack: {_NUM_ENVS_KEY} is 1")
    return named, said


def _additional(given: Mapping[str, Any]) -> Mapping[str, Any]:
    additional = given.get(_ADDITIONAL_CONFIGS, {})
    if not isinstance(additional, Mapping):
        raise HyperparameterError(
            f"{_ADDITIONAL_CONFIGS} must be a dictionary of RLlib's settings, got {additional!r:.80}"
        )
    return additional


def _value(name: str, value: Any) -> Any:
    if name == CONFIG_PREFIX + "num_cpus":
        if not isinstance(value, int) or value < 1:
            raise HyperparameterError(f"{name} must be a number of CPUs, got {value!r}")
        return value - 1  # one is the driver's, as it was there
    if name == "use_heuristics_action_masks":
        return "fatal" if value else "none"
    if name == "heuristics":
        return "+".join(_MASK_NAMES.get(one, one) for one in value) or "none"
    return value
