"""Launcher of Procgen training: hyperparameters and RLlib's configuration."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env

from battlesnake_gym.common.command_line import Parser
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_rl.procgen import generalization, procgen_experiments
from battlesnake_rl.procgen.impala_network import MODEL_CONFIG, ImpalaModule
from battlesnake_rl.procgen.kit import kit_settings, plugins
from battlesnake_rl.procgen.procgen_env_config import with_defaults
from battlesnake_rl.procgen.procgen_environment import PROCGEN_ENV_NAME, VectorProcgen, make_env
from battlesnake_rl.procgen.procgen_ppo import ProcgenPPO, ProcgenPPOConfig
from sagemaker_rl.job import pinned_wheels
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, HyperparameterError, hyperparameter
from sagemaker_rl.job.job_environment import log_line
from sagemaker_rl.job.utilization import UsableResources
from sagemaker_rl.ray_launcher import Hyperparameters, RunSummary, SageMakerRayLauncher
from sagemaker_rl.runs.training_run import CSV_COLUMNS

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


@dataclass(frozen=True)
class ProcgenHyperparameters(Hyperparameters):
    """Hyperparameters of the environment and the algorithm."""

    algorithm: str = hyperparameter(
        "ProcgenPPO",
        "training algorithm: ProcgenPPO, an RLlib algorithm, or a file in algorithms/",
    )
    experiment: str = hyperparameter(
        _DEFAULT_EXPERIMENT, "name of an experiment, or an experiment file"
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


class ProcgenLauncher(SageMakerRayLauncher):
    """Train an agent on one of Procgen's 16 games.

    The experiment (a name or a .yaml file) sets the algorithm, the game and the stop condition.
    Command-line options override the experiment. The run directory RUNS/NAME contains progress.csv,
    tensorboard/ and checkpoints/. Examples:

      train-procgen --env-name bigfish
      train-procgen -f starter-example --env-name starpilot
      train-procgen --run IMPALA --minutes 5 --rl.training.config.lr 1e-4
    """

    hyperparameters_class = ProcgenHyperparameters
    csv_columns = CSV_COLUMNS | generalization.GENERALIZATION_COLUMNS

    def register_env_creator(self) -> None:
        """Register the environments under the starter kit's names."""
        for name in DEFAULT_FRAME_STACKS:
            register_env(name, make_env)

    def translate_legacy_hyperparameters(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Translate the kit's names to current names and log each translation."""
        values, messages = kit_settings.translate_hyperparameters(given)
        for line in messages:
            log_line(line)
        return values

    def experiment_defaults(
        self, given: Mapping[str, Any], before: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], str]:
        """Return the hyperparameters of the experiment, and an empty message.

        If ``given`` contains a stop condition, the stop conditions of the experiment do not apply.
        """
        values, messages = procgen_experiments.load_experiment(
            given.get("experiment", _DEFAULT_EXPERIMENT)
        )
        for line in messages:
            log_line(line)
        stops = ("num_iters", "minutes", "env_steps")
        if any(name in given for name in stops):
            values = {name: value for name, value in values.items() if name not in stops}
        _check_network_settings(values | dict(given))
        return values, ""

    def get_experiment_config(self, hyperparameters: ProcgenHyperparameters) -> AlgorithmConfig:
        """Return the RLlib configuration of a game's algorithm, network and callbacks."""
        config = configure(hyperparameters)
        return config.debugging(seed=hyperparameters.seed, log_level="ERROR")

    def check_host(self, config: AlgorithmConfig) -> None:
        """Start a game to check that the packages of the games are installed."""
        if config.env_config["provider"] == "procgen":
            pinned_wheels.ensure_installed(pinned_wheels.PROCGEN_ORIGINAL, "provider procgen")
        games = VectorProcgen(1, config.env_config)
        try:
            games.reset(seed=0)
        except ImportError as error:
            raise HyperparameterError(
                f"{error}; a job's image built from deployment/training/Dockerfile has it"
            ) from None
        games.close()

    def default_num_env_runners(self, config: AlgorithmConfig, cpus: int) -> int:
        """Return the default number of env runners.

        The number is 0 for at most four CPUs, because sampling and learning then alternate. The
        number is also 0 for a learner on a GPU, which `ProcgenRunner` then shares. Otherwise, the
        env runners share the games evenly, and some CPUs may be idle.
        """
        if cpus <= 4 or (isinstance(config, ProcgenPPOConfig) and config.num_gpus_per_learner):
            return 0
        maximum = super().default_num_env_runners(config, cpus)
        shared = config.games if isinstance(config, ProcgenPPOConfig) else None
        if shared is None:
            return maximum
        return max(runners for runners in range(1, maximum + 1) if shared % runners == 0)

    def expected_utilization(self, config: AlgorithmConfig) -> UsableResources:
        """Return the number of CPUs and GPUs that the training keeps busy.

        If there are no env runners, torch uses all CPUs. The learner uses one GPU.
        """
        usual = super().expected_utilization(config)
        return usual if config.num_env_runners else UsableResources(math.inf, usual.gpus)

    def default_run_name(self, hyperparameters: ProcgenHyperparameters) -> str:
        """Return a run name with the names of the experiment and the game."""
        game = (
            hyperparameters.env_name or with_defaults(hyperparameters.env_config or {})["env_name"]
        )
        return f"{Path(hyperparameters.experiment).stem}-{game}"

    def checkpoint_identity(self, config: AlgorithmConfig) -> dict[str, Any]:
        """Return the settings that a checkpoint and the resuming run must share.

        The settings are the algorithm, the game and the network.
        """
        generalization.check_evaluation_settings(config)
        spec = config.rl_module_spec
        return {
            "algorithm": config.algo_class.__name__,
            "env": config.env,
            "env_config": dict(config.env_config),
            "network": getattr(spec.module_class, "__name__", None),
            "network settings": dict(spec.model_config or {}),
        }

    def export_model(self, checkpoint: Path, model_dir: Path) -> RunSummary:
        """Return a summary of the run without an export.

        A rollout loads the checkpoint itself.
        """
        return RunSummary(
            strength="mean rewards are in progress.csv; a rollout measures more episodes",
            model=f"{checkpoint}, an RLlib checkpoint",
            next_command=f"battlesnake-gym procgen rollout {checkpoint}",
        )

    def parser(self, prog: str | None) -> Parser:
        """Return the parser, which also accepts the starter kit's names of two options."""
        parser = super().parser(prog)
        parser.add_argument(
            *("-f", "--config-file"),
            dest="hyperparameter.experiment",
            default=argparse.SUPPRESS,
            metavar="FILE",
            help="same as --experiment",
        )
        parser.add_argument(
            "--run",
            dest="hyperparameter.algorithm",
            default=argparse.SUPPRESS,
            metavar="NAME",
            help="same as --algorithm",
        )
        return parser


def _check_network_settings(values: Mapping[str, Any]) -> None:
    """Reject settings for RLlib's networks that would have no effect.

    Raises:
        HyperparameterError: If a setting without an effect exists.
    """
    own_network = values.get("custom_model", "impala_cnn") is None
    for name in values:
        if not name.startswith(CONFIG_PREFIX):
            continue
        field = name.removeprefix(CONFIG_PREFIX).split(".")[0]
        if field == "model_config" and not own_network:
            raise HyperparameterError(
                f"{name} would have no effect; set custom_options, or with custom_model null "
                f"{CONFIG_PREFIX}model_config"
            )


def configure(hyperparameters: ProcgenHyperparameters) -> AlgorithmConfig:
    """Return the RLlib configuration of a game's algorithm, network and callbacks.

    Raises:
        ValueError: If a name is unknown or a setting is invalid. For an unknown name, the message
            lists the known names.
    """
    env, model = hyperparameters.env, hyperparameters.custom_model
    if env not in DEFAULT_FRAME_STACKS:
        raise ValueError(unknown_name_message("env", env, DEFAULT_FRAME_STACKS))
    env_config = {"frame_stack": DEFAULT_FRAME_STACKS[env], **(hyperparameters.env_config or {})}
    if hyperparameters.env_name is not None:
        env_config["env_name"] = hyperparameters.env_name
    algorithm = plugins.find_class("algorithms", hyperparameters.algorithm, _ALGORITHM_CLASSES)
    config = algorithm.get_default_config()
    config.environment(env, env_config=with_defaults(env_config))
    if not isinstance(config, ProcgenPPOConfig):
        # In this mode, each env runner steps its games as one batch with one forward pass per step.
        config.env_runners(gym_env_vectorize_mode="vector_entry_point")
    config.learners(num_gpus_per_learner=int(torch.cuda.is_available()))
    generalization.enable_test_curve(config)
    if model is not None:
        network = plugins.find_class("models", model, NETWORK_CLASSES)
        options = dict(hyperparameters.custom_options or {})
        for key in sorted(set(options) - set(_NETWORK_OPTIONS.get(model, options))):
            raise ValueError(
                f"custom_options of {model} has no key {key!r}; "
                f"its keys are {', '.join(_NETWORK_OPTIONS[model])}"
            )
        config.rl_module(rl_module_spec=RLModuleSpec(module_class=network, model_config=options))
    if hyperparameters.callbacks is not None:
        config.callbacks(plugins.find_class("callbacks", hyperparameters.callbacks))
    return config
