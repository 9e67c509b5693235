"""Experiment files as in the competition's starter kit, read into hyperparameters.

A file holds one experiment: its name, and under it ``env``, ``run``, ``stop`` and ``config``. What
stands in ``config`` are RLlib's settings, with ``env_config``, ``model`` and ``callbacks`` among
them. Settings that RLlib has renamed or dropped since are refused with what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from battlesnake_gym.nearest import unknown
from sagemaker_rl.hyperparameters import CONFIG_PREFIX
from sagemaker_rl.old_names import RENAMED

FOLDER = Path(__file__).with_name("experiment_files")

STOP = {
    "timesteps_total": "timesteps",
    "training_iteration": "num_iters",
    "time_total_s": "minutes",
}
"""The conditions under ``stop`` and the hyperparameters that they set."""

GONE = {
    **dict.fromkeys(("use_pytorch", "eager", "framework"), "everything is PyTorch now"),
    **dict.fromkeys(
        ("vf_share_layers", "preprocessor_pref", "observation_filter", "synchronize_filters"),
        "the model decides what it does with pictures and which layers it shares",
    ),
    **dict.fromkeys(
        ("horizon", "soft_horizon", "no_done_at_end"), "the games end as they should by themselves"
    ),
    **dict.fromkeys(
        ("exploration_config", "log_sys_usage", "normalize_actions", "clip_actions"),
        "it has no effect on these games",
    ),
}
"""Settings of the starter kit that mean nothing any more, and why."""

_CHECKPOINTS = ("checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num")


class ExperimentError(ValueError):
    """An experiment that is not there, or whose file is not as it must be."""


def names() -> list[str]:
    """The experiments there are."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(experiment: str) -> dict[str, Any]:
    """The hyperparameters of an experiment: the name of one of `names`, or a file's path.

    Raises:
        ExperimentError: there is no such experiment, or its file has faults: all are named.
    """
    path = Path(experiment) if experiment.endswith((".yaml", ".yml")) else _named(experiment)
    if not path.is_file():
        raise ExperimentError(f"there is no experiment file {path}")
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ExperimentError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict) or len(content) != 1:
        raise ExperimentError(f"{path} must hold one experiment: a name with all else under it")
    (body,) = content.values()
    if faults := _faults(body):
        raise ExperimentError(f"{path} cannot be run:\n" + "\n".join(f"  {f}" for f in faults))
    return _hyperparameters(body)


def _named(experiment: str) -> Path:
    if experiment not in names():
        raise ExperimentError(
            f"{unknown('experiment', experiment, names())}; or give the path of a .yaml file"
        )
    return FOLDER / f"{experiment}.yaml"


def _faults(body: Any) -> list[str]:
    """Everything that is wrong with an experiment, so that one edit sets it right."""
    if not isinstance(body, dict):
        return ["under the name must stand env, run, stop and config"]
    faults = []
    for key in body:
        if key in _CHECKPOINTS:
            faults.append(f"{key}: delete it; a checkpoint is written each minute and at the end")
        elif key not in ("env", "run", "stop", "config"):
            faults.append(f"{key}: unknown; there are env, run, stop and config")
    for part in ("stop", "config"):
        if not isinstance(body.get(part, {}), dict):
            return [*faults, f"{part}: must be a table of settings"]
    unknown = [key for key in body.get("stop", {}) if key not in STOP]
    faults += [f"stop.{key}: unknown; there are {', '.join(STOP)}" for key in unknown]
    for key in body.get("config", {}):
        if key in RENAMED:
            faults.append(f"config.{key}: its name is {RENAMED[key]} now")
        elif key in GONE:
            faults.append(f"config.{key}: delete it; {GONE[key]}")
    model = body.get("config", {}).get("model", {})
    if not isinstance(model, dict) or set(model) - {"custom_model", "custom_options"}:
        faults.append("config.model: there are custom_model and custom_options; write a network "
                      "of your own into models/")  # fmt: skip
    return faults


def _hyperparameters(body: Mapping[str, Any]) -> dict[str, Any]:
    config = dict(body.get("config", {}))
    values: dict[str, Any] = {}
    for key, name in (("run", "algorithm"), ("env", "env")):
        if key in body:
            values[name] = body[key]
    for key, value in body.get("stop", {}).items():
        values |= {"minutes": value / 60} if key == "time_total_s" else {STOP[key]: value}
    values |= config.pop("model", {})
    for key, name in (
        *(("env_config", "env_config"), ("callbacks", "callbacks"), ("seed", "seed")),
        ("num_env_runners", "num_workers"),
    ):
        if key in config:
            values[name] = config.pop(key)
    return values | {CONFIG_PREFIX + key: value for key, value in config.items()}
