"""Support for published code listings of the two starter kits.

Call `enable_legacy_listings` before a pasted listing, in an AWS account or in a simulation::

    legacy_listings.enable_legacy_listings(SimulatedSession())

``from sagemaker.rl import RLEstimator`` then imports this module's `RLEstimator`. This class
accepts the arguments of SDK 1 and SDK 2. The class replaces the kits' scripts, folders and image
with this project's versions, and logs a line for each replacement. SDK 3 has no ``RLEstimator``;
see docs/how-to/run-sagemaker-jobs.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import sagemaker.rl

from sagemaker_rl.job.hyperparameters import parse_value
from sagemaker_rl.job.job_environment import METRIC_DEFINITIONS, PRIMARY_JOB, log_line
from sagemaker_rl.job.source_files import (
    PROJECT_DEPENDENCIES,
    copy_project_sources,
    training_image_uri,
)

_STARTER_PACK_FOLDERS = (
    "sagemaker_rl",
    "BattlesnakeGym",
    "battlesnake_gym",
    "heuristics",
    "common",
    "utils",
)
"""Folders of the starter kits that `PROJECT_DEPENDENCIES` replace.

All other folders stay unchanged.
"""

_SDK1_ARGUMENT_NAMES = {
    "image_name": "image_uri",
    "train_instance_type": "instance_type",
    "train_instance_count": "instance_count",
    "train_volume_size": "volume_size",
    "train_use_spot_instances": "use_spot_instances",
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
}
"""Current argument names, keyed by their names in SDK 1."""

PROCGEN_SCRIPT = "train-procgen.py"
"""Name of this project's training script for Procgen."""
_SCRIPT_REPLACEMENTS: dict[str, tuple[str, dict[str, str]]] = {
    "train-mabs.py": ("train-mabs.py", {}),
    "train-mabs-dqn.py": ("train-mabs.py", {"algorithm": "DQN"}),
    "train-mabs-dqn-async.py": ("train-mabs.py", {"algorithm": "APEX"}),
    "train-sagemaker.py": (PROCGEN_SCRIPT, {"experiment": "single-instance"}),
    "train-sagemaker-distributed.py": (PROCGEN_SCRIPT, {"experiment": "homogeneous-cpu"}),
    "train-sagemaker-distributed-cpu.py": (PROCGEN_SCRIPT, {"experiment": "homogeneous-cpu"}),
    "train-sagemaker-distributed-gpu.py": (PROCGEN_SCRIPT, {"experiment": "homogeneous-gpu"}),
}
"""This project's script and its hyperparameters, keyed by published script."""

_CURRENT_METRIC_NAMES = {
    "episodes_total": "num_episodes",
    "timesteps_total": "env_steps",
    "num_steps_trained": "transitions_trained",
    "best_snake_episode_len_max": "Longest_snake",
}
"""Current names of metrics, keyed by their names in published listings."""
_SIMULATION_LIMITS = {"num_workers": 1, "num_cpus": 2, "num_gpus": 0}
"""Maximum values of hyperparameters in a simulation.

All instances of a simulation share this machine. One of ``num_cpus`` CPUs is the driver's.
"""
_ALGORITHM_NAMES = {"algorithm", "experiment", "rl.training.run"}
"""Hyperparameters that choose the algorithm."""


class RLEstimator(sagemaker.rl.RLEstimator):  # type: ignore[misc]
    """Estimator that accepts the arguments of published listings."""

    session: ClassVar[Any] = None

    def __init__(self, **given: Any) -> None:
        session = given.get("sagemaker_session") or self.session or sagemaker.Session()
        super().__init__(**_translate_arguments(given, session))

    def fit(self, inputs: Any = None, wait: bool = True, **options: Any) -> None:
        """Start the job, and wait for its end unless the job waits for a second job."""
        waits = self._hyperparameters.get("rl_cluster_type") == PRIMARY_JOB
        super().fit(inputs, wait=wait and not waits, **options)
        if wait and waits:
            log_line(
                "the primary job waits for the secondary job: call fit() of the secondary "
                "estimator now; logs() of this estimator shows the training"
            )


def enable_legacy_listings(session: Any = None) -> None:
    """Replace the SDK's ``RLEstimator``, so that published listings work.

    ``session`` is the SageMaker session of estimators that specify no session.
    """
    RLEstimator.session = session
    sagemaker.rl.RLEstimator = RLEstimator


def _translate_arguments(given: Mapping[str, Any], session: Any) -> dict[str, Any]:
    """Translate the arguments of a published listing, and log a line for each change.

    Returns:
        Arguments of the current SDK's estimator.
    """
    values = {_SDK1_ARGUMENT_NAMES.get(name, name): value for name, value in given.items()}
    for name in _SDK1_ARGUMENT_NAMES.keys() & given.keys():
        log_line(f"{name} is now {_SDK1_ARGUMENT_NAMES[name]}")
    values["sagemaker_session"] = session
    for name in ("toolkit", "toolkit_version", "framework"):
        values.pop(name, None)
    if "sagemaker-rl" in str(values.get("image_uri", "sagemaker-rl")):
        values["image_uri"] = training_image_uri(session)
        log_line(f"SageMaker's RLlib images end at Ray 1.6: using image_uri {values['image_uri']}")
    hyperparameters = dict(values.get("hyperparameters", {}))
    if hyperparameters.pop("rl.training.upload_dir", None):
        log_line("rl.training.upload_dir is now checkpoint_s3_uri")
    if values["entry_point"] in _SCRIPT_REPLACEMENTS:
        script, implied = _SCRIPT_REPLACEMENTS[values["entry_point"]]
        if script == PROCGEN_SCRIPT and "rl_cluster_type" in hyperparameters:
            implied = {"experiment": "heterogeneous"}
        folders = [Path(folder) for folder in values.get("dependencies", ())]
        extra = [one for one in folders if one.is_dir() and one.name not in _STARTER_PACK_FOLDERS]
        if script == "train-mabs.py" and not _ALGORITHM_NAMES & (hyperparameters | implied).keys():
            alone = values.get("instance_count") == 1 and "rl_cluster_type" not in hyperparameters
            implied = {"algorithm": "DQN" if alone else "APEX"}
        log_line(
            f"using entry_point rllib_src/{script} {implied or ''} with dependencies "
            f"{PROJECT_DEPENDENCIES}"
        )
        values |= {"entry_point": script, **copy_project_sources(extra)}
        hyperparameters = implied | hyperparameters
    if hasattr(type(session), "newest_job"):
        limited = {f"rl.training.config.{name}" for name in ("num_workers", "num_cpus")}
        if values["entry_point"] == PROCGEN_SCRIPT and not limited & hyperparameters.keys():
            # The experiment's number of env runners is for large machines.
            hyperparameters["num_env_runners"] = _SIMULATION_LIMITS["num_workers"]
        for name, limit in _SIMULATION_LIMITS.items():
            value = parse_value(str(hyperparameters.get(f"rl.training.config.{name}", limit)))
            if isinstance(value, int | float) and value > limit:
                hyperparameters[f"rl.training.config.{name}"] = limit
                log_line(f"{name} is {limit} in a simulation")
    values["hyperparameters"] = hyperparameters
    if "metric_definitions" in values:
        values["metric_definitions"] = [
            _update_metric_definition(one) for one in values["metric_definitions"]
        ]
    return values


def _update_metric_definition(definition: Mapping[str, str]) -> Mapping[str, str]:
    """Return a metric definition with the current regex.

    If the log does not contain the metric, the function returns the definition unchanged.
    """
    label = re.match(r"(\w+): ", definition["Regex"])
    name = _CURRENT_METRIC_NAMES.get(label[1], label[1]) if label else ""
    found = {one["Name"]: one for one in METRIC_DEFINITIONS}
    current = found.get(name) or found.get(name.removesuffix("_max"))
    return {**definition, "Regex": current["Regex"]} if current else definition
