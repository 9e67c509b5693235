"""Experiment files in the format of the competition's starter kit.

A file contains the name of one experiment, with ``env``, ``run``, ``stop`` and ``config`` below the
name. ``config`` contains RLlib's settings, ``env_config``, ``model`` and ``callbacks``. Settings
with an old name are rejected; the message states the new name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.yaml_files import read_yaml
from battlesnake_rl.procgen.kit.plugins import PREPROCESSOR_ERROR
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, LEGACY_RLLIB_NAMES

_EXPERIMENT_DIR = Path(__file__).with_name("experiment_files")

_STOP_CONDITIONS = {
    "timesteps_total": "env_steps",
    "training_iteration": "num_iters",
    "time_total_s": "minutes",
}
"""Hyperparameter for each condition under ``stop``."""

_MODEL_KEYS = ("custom_model", "custom_options")
"""Supported keys under ``model``."""


class ExperimentError(ValueError):
    """Error for a missing experiment or an invalid experiment file."""


def experiment_names() -> list[str]:
    """Return the names of the built-in experiments."""
    return sorted(path.stem for path in _EXPERIMENT_DIR.glob("*.yaml"))


def load_experiment(experiment: str) -> dict[str, Any]:
    """Load the hyperparameters of an experiment.

    Args:
        experiment: Name of a built-in experiment or path of a .yaml file.

    Raises:
        ExperimentError: If the experiment does not exist, or if its file is invalid. The message
            lists all errors in the file.
    """
    path = (
        Path(experiment) if experiment.endswith((".yaml", ".yml")) else _experiment_path(experiment)
    )
    if not path.is_file():
        raise ExperimentError(f"there is no experiment file {path}")
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise ExperimentError(str(error)) from None
    if not isinstance(content, dict) or len(content) != 1:
        raise ExperimentError(
            f"{path} must contain one experiment: a name with its settings below it"
        )
    (body,) = content.values()
    if faults := _find_errors(body):
        raise ExperimentError(f"{path} cannot be run:\n" + "\n".join(f"  {f}" for f in faults))
    return _to_hyperparameters(body)


def _experiment_path(experiment: str) -> Path:
    """Return the path of the file of a built-in experiment.

    Raises:
        ExperimentError: If the experiment does not exist.
    """
    if experiment not in experiment_names():
        raise ExperimentError(
            f"{unknown_name_message('experiment', experiment, experiment_names())}; or use the "
            "path of a .yaml file"
        )
    return _EXPERIMENT_DIR / f"{experiment}.yaml"


def _find_errors(body: Any) -> list[str]:
    """Return one message for each error in an experiment."""
    if not isinstance(body, dict):
        return ["the name must have env, run, stop and config below it"]
    faults: list[str] = []
    unknown_parts = [key for key in body if key not in ("env", "run", "stop", "config")]
    faults += [f"{key}: unknown; use env, run, stop and config" for key in unknown_parts]
    for part in ("stop", "config"):
        if not isinstance(body.get(part, {}), dict):
            return [*faults, f"{part}: must be a mapping of settings"]
    unknown = [key for key in body.get("stop", {}) if key not in _STOP_CONDITIONS]
    faults += [f"stop.{key}: unknown; use {', '.join(_STOP_CONDITIONS)}" for key in unknown]
    config = body.get("config", {})
    faults += [
        f"config.{key}: use {LEGACY_RLLIB_NAMES[key]}"
        for key in config
        if key in LEGACY_RLLIB_NAMES
    ]
    model = config.get("model", {})
    if isinstance(model, dict) and "custom_preprocessor" in model:
        faults.append(f"config.model.{PREPROCESSOR_ERROR}")
    elif not isinstance(model, dict) or set(model) - set(_MODEL_KEYS):
        faults.append(f"config.model: use {', '.join(_MODEL_KEYS)}; put your own "
                      "network into models/")  # fmt: skip
    return faults


def _to_hyperparameters(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an experiment's settings to hyperparameters."""
    config = dict(body.get("config", {}))
    values: dict[str, Any] = {}
    for key, name in (("run", "algorithm"), ("env", "env")):
        if key in body:
            values[name] = body[key]
    for key, value in body.get("stop", {}).items():
        values |= (
            {"minutes": value / 60} if key == "time_total_s" else {_STOP_CONDITIONS[key]: value}
        )
    values |= config.pop("model", {})
    for key, name in (
        *(("env_config", "env_config"), ("callbacks", "callbacks"), ("seed", "seed")),
        ("num_env_runners", "num_env_runners"),
    ):
        if key in config:
            values[name] = config.pop(key)
    return values | {CONFIG_PREFIX + key: value for key, value in config.items()}
