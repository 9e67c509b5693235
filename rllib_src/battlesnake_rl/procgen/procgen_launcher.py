"""Launcher of Procgen training: hyperparameters and RLlib's configuration."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env

from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_rl.procgen import procgen_episodes, procgen_experiments
from battlesnake_rl.procgen.impala_network import MODEL_CONFIG, ImpalaModule
from battlesnake_rl.procgen.kit import kit_settings, plugins
from battlesnake_rl.procgen.procgen_env_config import with_defaults
from battlesnake_rl.procgen.procgen_environment import PROCGEN_ENV_NAME, VectorProcgen, make_env
from battlesnake_rl.procgen.procgen_ppo import ProcgenPPO, ProcgenPPOConfig
from sagemaker_rl.job import pinned_wheels
from sagemaker_rl.job.hyperparameters import (
    CONFIG_PREFIX,
    STOP_CONDITIONS,
    HyperparameterError,
    hyperparameter,
    parse_value,
)
from sagemaker_rl.job.utilization import ResourcePlan
from sagemaker_rl.ray_launcher import Completion, Hyperparameters, SageMakerRayLauncher

DEFAULT_FRAME_STACKS = {PROCGEN_ENV_NAME: 1, "stacked_procgen_env": 4}
"""Default ``frame_stack`` for each environment name of the starter kit."""

NETWORK_CLASSES = {"impala_cnn": ImpalaModule}
_ALGORITHM_CLASSES = {"ProcgenPPO": ProcgenPPO}
"""This project's algorithms, keyed by name.

RLlib's algorithms and user-defined algorithms are also available.
"""
_NETWORK_OPTIONS = {"impala_cnn": MODEL_CONFIG}
"""Keys and default values of ``custom_options``, by network name."""

_DEFAULT_EXPERIMENT = "impala-baseline"

_ALGORITHM_SETTING = re.compile(rf"{re.escape(CONFIG_PREFIX)}(?!evaluation_)")
"""Pattern of settings that are specific to an algorithm."""


@dataclass(frozen=True)
class ProcgenHyperparameters(Hyperparameters):
    """Hyperparameters of the environment and the algorithm."""

    algorithm: str = hyperparameter(
        "ProcgenPPO",
        "training algorithm: ProcgenPPO, an RLlib algorithm, or a file in algorithms/",
        aliases=("run",),
    )
    experiment: str = hyperparameter(
        _DEFAULT_EXPERIMENT,
        "name of an experiment, or an experiment file",
        aliases=("config_file", "f"),
    )
    env: str = hyperparameter(PROCGEN_ENV_NAME, f"environment: {' or '.join(DEFAULT_FRAME_STACKS)}")
    env_name: str | None = hyperparameter(
        None, "name of the game; overrides the game of the experiment"
    )
    env_config: dict[str, Any] | None = hyperparameter(
        None, "environment options (battlesnake_rl.procgen.procgen_env_config)"
    )
    custom_model: str | None = hyperparameter(
        "impala_cnn",
        "network: impala_cnn, a file in models/, or null for the algorithm's default network",
    )
    custom_options: dict[str, Any] | None = hyperparameter(None, "options of the network")
    callbacks: str | None = hyperparameter(
        None, "user-defined callbacks: a file in callbacks/, or the path of a .py file"
    )

    @property
    def run_name(self) -> str:
        """Run name with the names of the experiment and the game."""
        game = self.env_name or with_defaults(self.env_config or {})["env_name"]
        return f"{Path(self.experiment).stem}-{game}"

    @classmethod
    def complete(cls, given: dict[str, Any]) -> Completion:
        """Return this class and the hyperparameters of the experiment.

        If ``given`` contains a stop condition, the stop conditions of the experiment do not apply.
        If ``given`` contains another algorithm, the settings of the experiment's algorithm do not
        apply.
        """
        names = cls.field_names()
        parsed = {
            names.get(name, name): parse_value(value) if isinstance(value, str) else value
            for name, value in given.items()
        }
        plain, messages = kit_settings.translate_hyperparameters(parsed)
        given.clear()
        given |= plain
        experiment = plain.get("experiment", _DEFAULT_EXPERIMENT)
        values, translated = procgen_experiments.load_experiment(experiment)
        if plain.get("custom_model", preset := values.get("custom_model")) != preset:
            values.pop("custom_options", None)
        for name in ("env_config", "custom_options"):
            if all(isinstance(one.get(name), Mapping) for one in (values, plain)):
                given[name] = {**values[name], **plain[name]}
        if plain.keys() & STOP_CONDITIONS:
            values = {name: value for name, value in values.items() if name not in STOP_CONDITIONS}
        preset_algorithm = values.get("algorithm", cls.algorithm)
        if (algorithm := plain.get("algorithm", preset_algorithm)) != preset_algorithm:
            other = [name for name in values if _ALGORITHM_SETTING.match(name)]
            values = {name: value for name, value in values.items() if name not in other}
            if other:
                messages.append(
                    f"settings of {preset_algorithm} are left out with {algorithm}: "
                    f"{', '.join(name.removeprefix(CONFIG_PREFIX) for name in other)}"
                )
        if algorithm == "random_agent":
            values["custom_model"] = None  # The algorithm has its own network.
        _check_given_settings(plain, values | plain)
        return Completion(cls, values, [*messages, *translated])

    def build_config(self) -> AlgorithmConfig:
        """Return the RLlib configuration of a game's algorithm, network and callbacks.

        Raises:
            ValueError: If a name is unknown or a setting is invalid. For an unknown name, the
                message lists the known names.
        """
        env, model = self.env, self.custom_model
        if env not in DEFAULT_FRAME_STACKS:
            raise ValueError(unknown_name_message("env", env, DEFAULT_FRAME_STACKS))
        env_config = {"frame_stack": DEFAULT_FRAME_STACKS[env], **(self.env_config or {})}
        if self.env_name is not None:
            env_config["env_name"] = self.env_name
        algorithm = plugins.find_class("algorithms", self.algorithm, _ALGORITHM_CLASSES)
        config = algorithm.get_default_config()
        config.environment(env, env_config=with_defaults(env_config))
        if not isinstance(config, ProcgenPPOConfig):
            # In this mode, each env runner steps its games as one batch with one forward pass per
            # step.
            config.env_runners(gym_env_vectorize_mode="vector_entry_point")
        config.learners(num_gpus_per_learner=int(torch.cuda.is_available()))
        procgen_episodes.enable_test_curve(config)
        if model is not None:
            network = plugins.find_class("models", model, NETWORK_CLASSES)
            options = dict(self.custom_options or {})
            for key in sorted(set(options) - set(_NETWORK_OPTIONS.get(model, options))):
                known = _NETWORK_OPTIONS[model]
                raise ValueError(unknown_name_message("key of custom_options", key, known))
            config.rl_module(
                rl_module_spec=RLModuleSpec(module_class=network, model_config=options)
            )
        if self.callbacks is not None:
            config.callbacks(plugins.find_class("callbacks", self.callbacks))
        return config


class ProcgenLauncher(SageMakerRayLauncher):
    """Train an agent on one of Procgen's 16 games.

    The experiment (a name or a .yaml file) sets the algorithm, the game and the stop condition.
    Command-line options override the experiment. The run directory RUNS/NAME contains progress.csv,
    tensorboard/ and checkpoints/. Examples:

      battlesnake-gym procgen train --env-name bigfish
      battlesnake-gym procgen train -f starter-example --env-name starpilot
      battlesnake-gym procgen train --run IMPALA --minutes 5 --rl.training.config.lr 1e-4
    """

    hyperparameters_class = ProcgenHyperparameters
    csv_columns = procgen_episodes.GENERALIZATION_COLUMNS

    def register_env_creator(self) -> None:
        """Register the environments under the starter kit's names."""
        for name in DEFAULT_FRAME_STACKS:
            register_env(name, make_env)

    def get_experiment_config(self, hyperparameters: ProcgenHyperparameters) -> AlgorithmConfig:
        """Return the RLlib configuration of a game's algorithm, network and callbacks."""
        config = hyperparameters.build_config()
        if not self.dry_run:
            _check_games_start(config.env_config)
        return config.debugging(seed=hyperparameters.seed, log_level="ERROR")

    def plan_resources(self, config: AlgorithmConfig, cpus: int) -> ResourcePlan:
        """Return the default number of env runners, and the expected utilization.

        The number is 0 for at most four CPUs, because sampling and learning then alternate. The
        number is also 0 for a learner on this machine's GPU, which `ProcgenRunner` then shares.
        Otherwise, the env runners share the games evenly, and some CPUs may be idle. If there are
        no env runners, torch uses all CPUs.
        """
        usual = super().plan_resources(config, cpus)
        own = isinstance(config, ProcgenPPOConfig)
        shared = config.games if own else None
        runners = usual.num_env_runners
        if cpus <= 4 or (own and config.num_gpus_per_learner and not config.num_learners):
            runners = 0
        elif shared is not None:
            runners = max(one for one in range(1, runners + 1) if shared % one == 0)
        busy = usual.cpus if config.num_env_runners else math.inf
        return ResourcePlan(runners, busy, usual.gpus)

    def checkpoint_identity(self, config: AlgorithmConfig) -> dict[str, Any]:
        """Return the settings that a checkpoint and the resuming run must share.

        The settings are the algorithm, the game and the network.
        """
        procgen_episodes.check_evaluation_settings(config)
        spec = config.rl_module_spec
        return {
            "algorithm": config.algo_class.__name__,
            "env": config.env,
            "env_config": with_defaults(config.env_config),
            "network": getattr(spec.module_class, "__name__", None),
            "network settings": dict(spec.model_config or {}),
        }

    def export_model(
        self, config: AlgorithmConfig, checkpoint: Path, model_dir: Path
    ) -> tuple[str, str, str]:
        """Return the texts of the last log lines, without an export.

        A rollout loads the checkpoint itself.
        """
        strength = "mean rewards are in progress.csv; a rollout measures more episodes"
        command = f"battlesnake-gym procgen rollout {shlex.quote(str(checkpoint))}"
        return strength, f"{checkpoint}, an RLlib checkpoint", command


def _check_games_start(env_config: Mapping[str, Any]) -> None:
    """Start a game to check that the packages of the games are installed."""
    if env_config["provider"] == "procgen":
        pinned_wheels.PROCGEN_ORIGINAL.ensure_installed("provider procgen")
    games = VectorProcgen(1, env_config)
    try:
        games.reset(seed=0)
    except ImportError as error:
        raise HyperparameterError(
            f"{error}; a job's image built from deployment/training/Dockerfile has it"
        ) from None
    games.close()


def _check_given_settings(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Reject settings that would have no effect.

    Args:
        given: Settings of the user.
        values: Settings of the user and of the experiment.

    Raises:
        HyperparameterError: If a setting without an effect exists.
    """
    field = f"{CONFIG_PREFIX}model_config"
    name, games = given.get("env_name"), given.get("env_config")
    other = games.get("env_name") if isinstance(games, Mapping) else None
    if name is not None and other not in (None, name):
        raise HyperparameterError(
            f"env_name is {name}, but env_config has env_name {other}; set only one of them"
        )
    if values.get("custom_model", "impala_cnn") is None:
        if given.get("custom_options"):
            raise HyperparameterError(
                f"custom_options would have no effect with custom_model null; set {field}"
            )
        return
    for name in values:
        if f"{name}.".startswith(f"{field}."):
            raise HyperparameterError(
                f"{name} would have no effect; set custom_options, or with custom_model null "
                f"{field}"
            )
