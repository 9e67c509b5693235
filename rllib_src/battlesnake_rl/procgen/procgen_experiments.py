"""Experiment files in the format of the competition's starter kit.

A file contains one experiment: its name, with ``env``, ``run``, ``stop`` and ``config`` below it.
``config`` contains RLlib's settings, ``env_config``, ``model`` and ``callbacks``. Renamed settings
are rejected, and the message gives the new name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.yaml_files import read_yaml
from battlesnake_rl.procgen.kit.plugins import NO_PREPROCESSORS
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, LEGACY_RLLIB_NAMES

_FOLDER = Path(__file__).with_name("experiment_files")

_STOP = {
    "timesteps_total": "env_steps",
    "training_iteration": "num_iters",
    "time_total_s": "minutes",
}
"""Hyperparameter by the name of the condition under ``stop``."""

_MODEL_KEYS = ("custom_model", "custom_options")
"""Keys under ``model``."""


class ExperimentError(ValueError):
    """Error raised if an experiment is missing or its file is invalid."""


def names() -> list[str]:
    """Return the names of the experiments."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def read(experiment: str) -> dict[str, Any]:
    """Read the hyperparameters of an experiment.

    Args:
        experiment: Name of an experiment (`names`) or path of a .yaml file.

    Raises:
        ExperimentError: If there is no such experiment, or its file is invalid; the message lists
            all errors in the file.
    """
    path = Path(experiment) if experiment.endswith((".yaml", ".yml")) else _named(experiment)
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
    if faults := _faults(body):
        raise ExperimentError(f"{path} cannot be run:\n" + "\n".join(f"  {f}" for f in faults))
    return _hyperparameters(body)


def _named(experiment: str) -> Path:
    if experiment not in names():
        raise ExperimentError(
            f"{unknown_name_message('experiment', experiment, names())}; or use the path of a "
            ".yaml file"
        )
    return _FOLDER / f"{experiment}.yaml"


def _faults(body: Any) -> list[str]:
    """Return messages about all errors in an experiment."""
    if not isinstance(body, dict):
        return ["the name must have env, run, stop and config below it"]
    faults: list[str] = []
    unknown_parts = [key for key in body if key not in ("env", "run", "stop", "config")]
    faults += [f"{key}: unknown; use env, run, stop and config" for key in unknown_parts]
    for part in ("stop", "config"):
        if not isinstance(body.get(part, {}), dict):
            return [*faults, f"{part}: must be a mapping of settings"]
    unknown = [key for key in body.get("stop", {}) if key not in _STOP]
    faults += [f"stop.{key}: unknown; use {', '.join(_STOP)}" for key in unknown]
    config = body.get("config", {})
    faults += [
        f"config.{key}: use {LEGACY_RLLIB_NAMES[key]}"
        for key in config
        if key in LEGACY_RLLIB_NAMES
    ]
    model = config.get("model", {})
    if isinstance(model, dict) and "custom_preprocessor" in model:
        faults.append(f"config.model.{NO_PREPROCESSORS}")
    elif not isinstance(model, dict) or set(model) - set(_MODEL_KEYS):
        faults.append(f"config.model: use {', '.join(_MODEL_KEYS)}; put your own "
                      "network into models/")  # fmt: skip
    return faults


def _hyperparameters(body: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(body.get("config", {}))
    values: dict[str, Any] = {}
    for key, name in (("run", "algorithm"), ("env", "env")):
        if key in body:
            values[name] = body[key]
    for key, value in body.get("stop", {}).items():
        values |= {"minutes": value / 60} if key == "time_total_s" else {_STOP[key]: value}
    values |= config.pop("model", {})
    for key, name in (
        *(("env_config", "env_config"), ("callbacks", "callbacks"), ("seed", "seed")),
        ("num_env_runners", "num_env_runners"),
    ):
        if key in config:
            values[name] = config.pop(key)
    return values | {CONFIG_PREFIX + key: value for key, value in config.items()}
