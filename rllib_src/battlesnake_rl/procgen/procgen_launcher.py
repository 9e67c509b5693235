"""The launcher of the Procgen experiments: hyperparameters and RLlib's configuration."""

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
from battlesnake_rl.procgen.kit import plugins
from battlesnake_rl.procgen.procgen_env_config import complete
from battlesnake_rl.procgen.procgen_environment import ENV_NAME, VectorProcgen, make_env
from battlesnake_rl.procgen.procgen_ppo import ProcgenPPO, ProcgenPPOConfig
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, HyperparameterError, hyperparameter
from sagemaker_rl.job.utilization import Utilization
from sagemaker_rl.ray_launcher import Hyperparameters, RunSummary, SageMakerRayLauncher
from sagemaker_rl.runs.training_run import CSV_COLUMNS

STACKED = {ENV_NAME: 1, "stacked_procgen_env": 4}
"""The environments by the names of the competition's starter kit: how many frames are seen at once
unless ``env_config`` says otherwise."""

MODELS = {"impala_cnn": ImpalaModule}
_ALGORITHMS = {"ProcgenPPO": ProcgenPPO}
"""What is here beside RLlib's and the files of users."""
_SETTINGS = {"impala_cnn": MODEL_CONFIG}
"""What each of our networks has under ``custom_options``, with the defaults."""

_DEFAULT_EXPERIMENT = "impala-baseline"


@dataclass(frozen=True)
class ProcgenHyperparameters(Hyperparameters):
    """What to play and how to learn; an experiment file sets most of them."""

    algorithm: str = hyperparameter(
        "ProcgenPPO", "ProcgenPPO, one of RLlib's, or a file in algorithms/"
    )
    experiment: str = hyperparameter(
        _DEFAULT_EXPERIMENT, "a named experiment, or an experiment file"
    )
    env: str = hyperparameter(ENV_NAME, f"the environment: {' or '.join(STACKED)}")
    env_name: str | None = hyperparameter(None, "the game, over that of the experiment")
    env_config: dict[str, Any] | None = hyperparameter(  # noqa: RUF009  (it makes a field)
        None, "what to play (battlesnake_rl.procgen.procgen_env_config)"
    )
    custom_model: str | None = hyperparameter(
        "impala_cnn",
        "the network: impala_cnn or a file in models/; null: the algorithm's own",
    )
    custom_options: dict[str, Any] | None = hyperparameter(  # noqa: RUF009
        None, "settings of the network"
    )
    callbacks: str | None = hyperparameter(None, "a file in callbacks/, or the path of a .py")


class ProcgenLauncher(SageMakerRayLauncher):
    """Train an agent on one of Procgen's 16 games.

    An experiment, a name or a .yaml file, says with what and for how long; flags go over it. The
    run goes to RUNS/NAME: progress.csv, tensorboard/ and checkpoints/. Examples:

      train-procgen --env-name bigfish
      train-procgen -f starter-example --env-name starpilot
      train-procgen --run IMPALA --minutes 5 --rl.training.config.lr 1e-4
    """

    hyperparameters_class = ProcgenHyperparameters
    csv_columns = CSV_COLUMNS | generalization.COLUMNS

    def register_env_creator(self) -> None:
        """Register the environments under the names that the starter kit has for them."""
        for name in STACKED:
            register_env(name, make_env)

    def experiment_defaults(
        self, given: Mapping[str, Any], before: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], str]:
        """The hyperparameters of the experiment; a stop condition that is given replaces all."""
        values = procgen_experiments.read(given.get("experiment", _DEFAULT_EXPERIMENT))
        stops = ("num_iters", "minutes", "env_steps")
        if any(name in given for name in stops):
            values = {name: value for name, value in values.items() if name not in stops}
        _check_network(values | dict(given))
        return values, ""

    def get_experiment_config(self, hyperparameters: ProcgenHyperparameters) -> AlgorithmConfig:
        """The configuration of the named algorithm, network and callbacks on the wanted game."""
        config = configure(hyperparameters)
        return config.debugging(seed=hyperparameters.seed, log_level="ERROR")

    def check_host(self, config: AlgorithmConfig) -> None:
        """Begin a game: its packages are large, and an image may do without them."""
        games = VectorProcgen(1, config.env_config)
        try:
            games.reset(seed=0)
        except ImportError as error:
            raise HyperparameterError(
                f"{error}. The image of a job has it if it is built from "
                "deployment/training/Dockerfile"
            ) from None
        games.close()

    def default_num_env_runners(self, config: AlgorithmConfig, cpus: int) -> int:
        """None where there are few CPUs: sampling and learning in turn, both use all of them.

        Nor beside the learner's GPU, on which `ProcgenRunner` then plays. Else the games are shared
        evenly among the runners, so that some CPUs may be left.
        """
        if cpus <= 4 or (isinstance(config, ProcgenPPOConfig) and config.num_gpus_per_learner):
            return 0
        most = super().default_num_env_runners(config, cpus)
        shared = config.games if isinstance(config, ProcgenPPOConfig) else None
        if shared is None:
            return most
        return max(runners for runners in range(1, most + 1) if shared % runners == 0)

    def expected_utilization(self, config: AlgorithmConfig) -> Utilization:
        """Without runners all CPUs, which torch shares out; one learner's GPU."""
        most = super().expected_utilization(config)
        return most if config.num_env_runners else Utilization(math.inf, most.gpus)

    def default_run_name(self, hyperparameters: ProcgenHyperparameters) -> str:
        """The experiment and the game."""
        game = hyperparameters.env_name or complete(hyperparameters.env_config or {})["env_name"]
        return f"{Path(hyperparameters.experiment).stem}-{game}"

    def checkpoint_identity(self, config: AlgorithmConfig) -> dict[str, Any]:
        """What decides whether a checkpoint can go on: algorithm, game and network."""
        generalization.check(config)
        spec = config.rl_module_spec
        return {
            "algorithm": config.algo_class.__name__,
            "env": config.env,
            "env_config": dict(config.env_config),
            "network": getattr(spec.module_class, "__name__", None),
            "network settings": dict(spec.model_config or {}),
        }

    def export_model(self, checkpoint: Path, model_dir: Path) -> RunSummary:
        """Nothing is made of the checkpoint, which plays as it is."""
        return RunSummary(
            strength="the reward of games, in progress.csv; a rollout plays more of them",
            model=f"{checkpoint}, a checkpoint of RLlib's",
            next_command=f"battlesnake-gym procgen rollout {checkpoint}",
        )

    def parser(self, prog: str | None) -> Parser:
        """The usual options, and the starter kit's words for two of the hyperparameters."""
        parser = super().parser(prog)
        parser.add_argument(
            *("-f", "--config-file"),
            dest="hyperparameter.experiment",
            default=argparse.SUPPRESS,
            metavar="FILE",
            help="the same as --experiment",
        )
        parser.add_argument(
            "--run",
            dest="hyperparameter.algorithm",
            default=argparse.SUPPRESS,
            metavar="NAME",
            help="the same as --algorithm",
        )
        return parser


def _check_network(values: Mapping[str, Any]) -> None:
    """Refuse RLlib's words for a network where they would do nothing."""
    rllibs_own = values.get("custom_model", "impala_cnn") is None
    for name in values:
        if not name.startswith(CONFIG_PREFIX):
            continue
        field = name.removeprefix(CONFIG_PREFIX).split(".")[0]
        if field == "model" or (field == "model_config" and not rllibs_own):
            raise HyperparameterError(
                f"{name} would do nothing; set custom_options, or with custom_model null "
                f"{CONFIG_PREFIX}model_config"
            )


def configure(hyperparameters: ProcgenHyperparameters) -> AlgorithmConfig:
    """RLlib's configuration of an algorithm, a network and callbacks on a game.

    Raises:
        ValueError: an unknown name, with those there are, or an impossible setting.
    """
    env, model = hyperparameters.env, hyperparameters.custom_model
    if env not in STACKED:
        raise ValueError(unknown_name_message("env", env, STACKED))
    env_config = {"frame_stack": STACKED[env], **(hyperparameters.env_config or {})}
    if hyperparameters.env_name is not None:
        env_config["env_name"] = hyperparameters.env_name
    algorithm = plugins.find("algorithms", hyperparameters.algorithm, _ALGORITHMS)
    config = algorithm.get_default_config()
    config.environment(env, env_config=complete(env_config))
    if not isinstance(config, ProcgenPPOConfig):
        # One batch of games a runner, and so one forward pass for all of them.
        config.env_runners(gym_env_vectorize_mode="vector_entry_point")
    config.learners(num_gpus_per_learner=int(torch.cuda.is_available()))
    generalization.set_up(config)
    if model is not None:
        network = plugins.find("models", model, MODELS)
        options = dict(hyperparameters.custom_options or {})
        for key in sorted(set(options) - set(_SETTINGS.get(model, options))):
            raise ValueError(
                f"custom_options of {model} has no key {key!r}; "
                f"its keys are {', '.join(_SETTINGS[model])}"
            )
        config.rl_module(rl_module_spec=RLModuleSpec(module_class=network, model_config=options))
    if hyperparameters.callbacks is not None:
        config.callbacks(plugins.find("callbacks", hyperparameters.callbacks))
    return config
