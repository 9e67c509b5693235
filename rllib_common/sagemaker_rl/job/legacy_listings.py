"""Listings of the two starter kits and their posts, as they were published.

A line before what is pasted makes it train, in the account or, given its session, in a rehearsal::

    published.listings(RehearsalSession())

``from sagemaker.rl import RLEstimator`` then gives the class below. It takes the words of the SDK 1
and 2, and puts this project's scripts, folders and image in the place of the kits', with a line for
each. The SDK 3 has no such class: docs/sagemaker.md.
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
"""What their folders are called whose work is done by `OURS`; any other comes along."""

_SDK1_NAMES = {
    "image_name": "image_uri",
    **{
        f"train_{word}": word
        for word in ("instance_type", "instance_count", "volume_size", "use_spot_instances")
    },
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
}
"""The SDK 1's, and today's."""

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
"""Their entry points: ours, and the hyperparameters that stand for what is written in them."""

_METRICS = {
    "episodes_total": "num_episodes",
    "timesteps_total": "env_steps",
    "num_steps_trained": "transitions_trained",
    "best_snake_episode_len_max": "Longest_snake",
}
_SIMULATION_LIMITS = {"num_workers": 1, "num_gpus": 0}
"""At most, in a rehearsal, whose instances share this machine."""


class RLEstimator(sagemaker.rl.RLEstimator):  # type: ignore[misc]
    """The SDK's, by the words of the listings."""

    session: ClassVar[Any] = None

    def __init__(self, **given: Any) -> None:
        session = given.get("sagemaker_session") or self.session or sagemaker.Session()
        super().__init__(**translate_arguments(given, session))


def enable_legacy_listings(session: Any = None) -> None:
    """From now on listings are taken as they are; estimators without a session get this one."""
    RLEstimator.session = session
    sagemaker.rl.RLEstimator = RLEstimator


def translate_arguments(given: Mapping[str, Any], session: Any) -> dict[str, Any]:
    """The arguments of today's estimator; says a line about each that is another.

    Raises ``ValueError`` where this is no clone of the project.
    """
    values = {_SDK1_NAMES.get(name, name): value for name, value in given.items()}
    for name in _SDK1_NAMES.keys() & given.keys():
        log_line(f"{name} is {_SDK1_NAMES[name]} today")
    values["sagemaker_session"] = session
    toolkit = [name for name in ("toolkit", "toolkit_version", "framework") if name in values]
    for name in toolkit:
        del values[name]
    if "sagemaker-rl" in str(values.get("image_uri", "sagemaker-rl")):
        values["image_uri"] = (
            f"{session.account_id()}.dkr.ecr.{session.boto_region_name}.amazonaws.com/"
            "battlesnake-training:latest"
        )
        log_line(f"SageMaker's RLlib images end at Ray 1.6: image_uri is {values['image_uri']}")
    hyperparameters = dict(values.get("hyperparameters", {}))
    if hyperparameters.pop("rl.training.upload_dir", None):
        log_line("rl.training.upload_dir is checkpoint_s3_uri today")
    if values["entry_point"] in _SCRIPTS:
        script, implied = _SCRIPTS[values["entry_point"]]
        if script == PROCGEN and "rl_cluster_type" in hyperparameters:
            implied = {"experiment": "heterogeneous"}
        folders = [Path(folder) for folder in values.get("dependencies", ())]
        brought = [one for one in folders if one.is_dir() and one.name not in _STARTER_PACK_FOLDERS]
        mine = copy_sources(
            source_dir=_ROOT / "rllib_src",
            dependencies=[*(_ROOT / one for one in PROJECT_DEPENDENCIES), *brought],
        )
        log_line(
            f"entry_point is rllib_src/{script} {implied or ''}, dependencies are {PROJECT_DEPENDENCIES}"
        )
        values |= {"entry_point": script, **mine}
        hyperparameters = implied | hyperparameters
    if hasattr(type(session), "newest_job"):
        if values["entry_point"] == PROCGEN:  # whose experiments say how many, for large machines
            hyperparameters["num_workers"] = _SIMULATION_LIMITS["num_workers"]
        for name, most in _SIMULATION_LIMITS.items():
            if hyperparameters.get(f"rl.training.config.{name}", most) > most:
                hyperparameters[f"rl.training.config.{name}"] = most
                log_line(f"{name} is {most} in a rehearsal")
    values["hyperparameters"] = hyperparameters
    if "metric_definitions" in values:
        values["metric_definitions"] = [_metric(one) for one in values["metric_definitions"]]
    return values


def _metric(definition: Mapping[str, str]) -> Mapping[str, str]:
    """The definition with the pattern of today's log, if that has the number."""
    word = re.match(r"(\w+): ", definition["Regex"])
    name = _METRICS.get(word[1], word[1]) if word else ""
    found = {one["Name"]: one for one in METRIC_DEFINITIONS}
    today = found.get(name) or found.get(name.removesuffix("_max"))
    return {**definition, "Regex": today["Regex"]} if today else definition
