"""Experiment files in the format of the competition's starter kit.

A file contains the name of one experiment, with ``env``, ``run``, ``stop`` and ``config`` below the
name. ``config`` contains RLlib's settings, ``env_config``, ``model`` and ``callbacks``. Files of
the kit itself are translated (`kit.kit_settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battlesnake_gym.common.yaml_files import read_yaml
from battlesnake_rl.mabs import experiments
from battlesnake_rl.procgen.kit import kit_settings
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, HyperparameterError

EXPERIMENT_DIR = Path(__file__).with_name("experiment_files")
"""Directory of the built-in experiments of Procgen."""

_STOP_CONDITIONS = {
    "timesteps_total": "env_steps",
    "training_iteration": "num_iters",
    "time_total_s": "minutes",
}
"""Hyperparameter for each condition under ``stop``."""

_PLAIN_SETTINGS = ("env_config", "callbacks", "seed", "num_env_runners")
"""Settings under ``config`` that are hyperparameters of the same name."""

_CHECKPOINT_SETTINGS = ("checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num")
"""Settings of the kit's files besides ``env``, ``run``, ``stop`` and ``config``."""


def load_experiment(experiment: str) -> tuple[dict[str, Any], list[str]]:
    """Load the hyperparameters of an experiment.

    Args:
        experiment: Name of a built-in experiment or path of a .yaml file.

    Returns:
        Hyperparameters, and a message for each setting of the kit that is translated.

    Raises:
        ValueError: If the experiment does not exist, or if its file is invalid.
    """
    path = experiments.find_experiment(experiment, EXPERIMENT_DIR)
    repeated: list[str] = []  # The kit's impala-baseline.yaml repeats keys.
    content = read_yaml(path, repeated)
    if not isinstance(content, dict) or len(content) != 1:
        raise ValueError(f"{path} must contain one experiment: a name with its settings below it")
    (body,) = content.values()
    if faults := _find_errors(body):
        raise ValueError(f"{path} cannot be run: {'; '.join(faults)}")
    try:
        values, messages = kit_settings.translate_file(_to_hyperparameters(body))
    except HyperparameterError as error:
        raise ValueError(f"{path} cannot be run: {error}") from None
    return values, [*(f"{key} is repeated: the last value is used" for key in repeated), *messages]


def _find_errors(body: Any) -> list[str]:
    """Return one message for each error in an experiment."""
    if not isinstance(body, dict):
        return ["the name must have env, run, stop and config below it"]
    faults: list[str] = []
    known = ("env", "run", "stop", "config", *_CHECKPOINT_SETTINGS)
    faults += [f"{key}: unknown; use {', '.join(known[:4])}" for key in body if key not in known]
    for part in ("stop", "config"):
        if not isinstance(body.get(part, {}), dict):
            return [*faults, f"{part}: must be a mapping of settings"]
    unknown = [key for key in body.get("stop", {}) if key not in _STOP_CONDITIONS]
    faults += [f"stop.{key}: unknown; use {', '.join(_STOP_CONDITIONS)}" for key in unknown]
    if not isinstance(body.get("config", {}).get("model", {}), dict):
        faults.append("config.model: must be a mapping of settings")
    return faults


def _to_hyperparameters(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment's settings, keyed by the names of hyperparameters."""
    config = dict(body.get("config", {}))
    values: dict[str, Any] = {
        f"rl.training.{key}": body[key] for key in _CHECKPOINT_SETTINGS if key in body
    }
    for key, name in (("run", "algorithm"), ("env", "env")):
        if key in body:
            values[name] = body[key]
    for key, value in body.get("stop", {}).items():
        values[_STOP_CONDITIONS[key]] = value / 60 if key == "time_total_s" else value
    for key, value in config.pop("model", {}).items():
        plain = key in ("custom_model", "custom_options")
        values[key if plain else f"{CONFIG_PREFIX}model.{key}"] = value
    for key, value in config.items():
        values[key if key in _PLAIN_SETTINGS else CONFIG_PREFIX + key] = value
    return values
