"""Support for the published listings of the two starter kits and their blog posts.

Call `enable_legacy_listings` before a pasted listing, in an AWS account or in a simulation::

    legacy_listings.enable_legacy_listings(SimulatedSession())

``from sagemaker.rl import RLEstimator`` then imports this module's `RLEstimator`. This class
accepts the arguments of the SDK 1 and 2. It replaces the kits' scripts, folders and image with this
project's versions, and logs a line for each replacement. The SDK 3 has no ``RLEstimator``; see
docs/sagemaker.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import sagemaker.rl

import battlesnake_gym
from sagemaker_rl.job.job_environment import METRIC_DEFINITIONS, log_line
from sagemaker_rl.job.source_files import PROJECT_DEPENDENCIES, copy_sources

_ROOT = Path(battlesnake_gym.__file__).parents[1]
_STARTER_PACK_FOLDERS = (
    "sagemaker_rl",
    "BattlesnakeGym",
    "battlesnake_gym",
    "heuristics",
    "common",
    "utils",
)
"""Folders of the kits that `PROJECT_DEPENDENCIES` replace; other folders are kept."""

_SDK1_NAMES = {
    "image_name": "image_uri",
    **{
        f"train_{word}": word
        for word in ("instance_type", "instance_count", "volume_size", "use_spot_instances")
    },
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
}
"""Current argument names by their names in the SDK 1."""

PROCGEN = "train-procgen.py"
_SCRIPTS: dict[str, tuple[str, dict[str, str]]] = {
    "train-mabs.py": ("train-mabs.py", {}),
    "train-mabs-dqn.py": ("train-mabs.py", {"algorithm": "DQN"}),
    "train-mabs-dqn-async.py": ("train-mabs.py", {"algorithm": "APEX"}),
    "train-sagemaker.py": (PROCGEN, {"experiment": "single-instance"}),
    "train-sagemaker-distributed.py": (PROCGEN, {"experiment": "homogeneous-cpu"}),
    "train-sagemaker-distributed-cpu.py": (PROCGEN, {"experiment": "homogeneous-cpu"}),
    "train-sagemaker-distributed-gpu.py": (PROCGEN, {"experiment": "homogeneous-gpu"}),
}
"""This project's script and the published hyperparameters, by published script."""

_METRICS = {
    "episodes_total": "num_episodes",
    "timesteps_total": "env_steps",
    "num_steps_trained": "transitions_trained",
    "best_snake_episode_len_max": "Longest_snake",
}
_SIMULATION_LIMITS = {"num_workers": 1, "num_gpus": 0}
"""Upper limits of hyperparameters in a simulation.

The instances of a simulation share this machine.
"""


class RLEstimator(sagemaker.rl.RLEstimator):  # type: ignore[misc]
    """The SDK's estimator, which accepts the arguments of published listings."""

    session: ClassVar[Any] = None

    def __init__(self, **given: Any) -> None:
        session = given.get("sagemaker_session") or self.session or sagemaker.Session()
        super().__init__(**translate_arguments(given, session))


def enable_legacy_listings(session: Any = None) -> None:
    """Replace the SDK's ``RLEstimator``, so that published listings work.

    Estimators without a session use ``session``.
    """
    RLEstimator.session = session
    sagemaker.rl.RLEstimator = RLEstimator


def translate_arguments(given: Mapping[str, Any], session: Any) -> dict[str, Any]:
    """Return the arguments of the current estimator, and log a line for each change.

    Raises:
        ValueError: If this project is not a clone of its repository.
    """
    values = {_SDK1_NAMES.get(name, name): value for name, value in given.items()}
    for name in _SDK1_NAMES.keys() & given.keys():
        log_line(f"{name} is now {_SDK1_NAMES[name]}")
    values["sagemaker_session"] = session
    toolkit = [name for name in ("toolkit", "toolkit_version", "framework") if name in values]
    for name in toolkit:
        del values[name]
    if "sagemaker-rl" in str(values.get("image_uri", "sagemaker-rl")):
        values["image_uri"] = (
            f"{session.account_id()}.dkr.ecr.{session.boto_region_name}.amazonaws.com/"
            "battlesnake-training:latest"
        )
        log_line(f"SageMaker's RLlib images end at Ray 1.6: using image_uri {values['image_uri']}")
    hyperparameters = dict(values.get("hyperparameters", {}))
    if hyperparameters.pop("rl.training.upload_dir", None):
        log_line("rl.training.upload_dir is now checkpoint_s3_uri")
    if values["entry_point"] in _SCRIPTS:
        script, implied = _SCRIPTS[values["entry_point"]]
        if script == PROCGEN and "rl_cluster_type" in hyperparameters:
            implied = {"experiment": "heterogeneous"}
        folders = [Path(folder) for folder in values.get("dependencies", ())]
        extra = [one for one in folders if one.is_dir() and one.name not in _STARTER_PACK_FOLDERS]
        sources = copy_sources(
            source_dir=_ROOT / "rllib_src",
            dependencies=[*(_ROOT / one for one in PROJECT_DEPENDENCIES), *extra],
        )
        log_line(
            f"using entry_point rllib_src/{script} {implied or ''} with dependencies "
            f"{PROJECT_DEPENDENCIES}"
        )
        values |= {"entry_point": script, **sources}
        hyperparameters = implied | hyperparameters
    if hasattr(type(session), "newest_job"):
        if values["entry_point"] == PROCGEN:  # set for large machines
            hyperparameters["num_env_runners"] = _SIMULATION_LIMITS["num_workers"]
        for name, limit in _SIMULATION_LIMITS.items():
            if hyperparameters.get(f"rl.training.config.{name}", limit) > limit:
                hyperparameters[f"rl.training.config.{name}"] = limit
                log_line(f"{name} is {limit} in a simulation")
    values["hyperparameters"] = hyperparameters
    if "metric_definitions" in values:
        values["metric_definitions"] = [_metric(one) for one in values["metric_definitions"]]
    return values


def _metric(definition: Mapping[str, str]) -> Mapping[str, str]:
    """Return the metric definition with the current regex if the log has the metric."""
    label = re.match(r"(\w+): ", definition["Regex"])
    name = _METRICS.get(label[1], label[1]) if label else ""
    found = {one["Name"]: one for one in METRIC_DEFINITIONS}
    current = found.get(name) or found.get(name.removesuffix("_max"))
    return {**definition, "Regex": current["Regex"]} if current else definition
