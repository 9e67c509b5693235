"""Launcher of Battlesnake training: hyperparameters, configuration and export.

This module imports neither torch nor Ray, so that ``--help`` and errors need little time.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from battlesnake_gym import snakes
from battlesnake_gym.env.opponent_names import check_fractions, seat_fractions, with_absolute_paths
from battlesnake_gym.snake_spec import PAST_SELF, SnakeSpec
from battlesnake_rl.mabs import experiments, starter_pack
from battlesnake_rl.mabs.base import supported_settings
from battlesnake_rl.mabs.base.game_metrics import GAME_METRICS
from battlesnake_rl.mabs.envs.training_env_config import ENV_CONFIG_DEFAULTS, ENV_NAME, env_options
from battlesnake_rl.mabs.settings.algorithm_settings import missing_setting_error, settings_class
from battlesnake_rl.mabs.settings.base_settings import AlgorithmSettings
from sagemaker_rl.job.hyperparameters import (
    CONFIG_PREFIX,
    HyperparameterError,
    hyperparameter,
    unknown_name_error,
)
from sagemaker_rl.job.job_environment import channel_folder, channel_names, log_line
from sagemaker_rl.job.utilization import ResourcePlan
from sagemaker_rl.ray_launcher import Completion, Hyperparameters, SageMakerRayLauncher

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

_POLICY_CHANNEL, _OPPONENTS_CHANNEL = "policy", "opponents"
"""Data channels of a job, for the initial policy and the opponents' files."""

DEFAULT_EXPERIMENT = "duel-distil"
"""Experiment that is trained if neither an experiment nor an algorithm is set."""

_PUBLISHED_ELO = {True: ("with bfloat16", 1581), False: ("without bfloat16", 1432)}
"""Class of processors and Elo of the default experiment, by support of bfloat16.

Each Elo is the median of three runs of three CPU minutes: Zen 4, and Zen 1 (AVX2). Keep the README
and docs equal.
"""


@dataclass(frozen=True)
class BattlesnakeHyperparameters(Hyperparameters):
    """Hyperparameters of the games and of the training.

    Attributes:
        env_config: Options of the games (`training_env_config.TrainingEnvConfig`).
    """

    algorithm: str = hyperparameter(
        "DQN",
        "training algorithm: DISTIL, PPO, RECURRENT_PPO, DQN, APEX, RLLIB_PPO, EXIT, MXNET, or "
        "FILE.py:NAME",
    )
    experiment: str | None = hyperparameter(
        None,
        "load hyperparameters from a named experiment or a .yaml file; command-line options "
        f"override them (default: {DEFAULT_EXPERIMENT})",
    )
    network: str | None = hyperparameter(
        None,
        "custom network, FILE.py:CLASS: a torch.nn.Module constructed with (observation_shape, "
        "num_actions)",
    )
    num_snakes: int | list[int] = hyperparameter(
        ENV_CONFIG_DEFAULTS["num_snakes"],
        "snakes per game; a list such as [2, 4] cycles through the values",
        aliases=("num_agents",),
    )
    board_size: int = hyperparameter(
        ENV_CONFIG_DEFAULTS["width"],
        "width and height of the board, in cells",
        aliases=("map_size", "map_height"),
    )
    curriculum: list[list[int]] | None = hyperparameter(
        None,
        "board size schedule: [[env_steps, size], ...], starting at 0 and ending at most at "
        "--board-size",
    )
    iterate_map_size: bool = hyperparameter(
        False, "cycle through board sizes 7, 11 and 19, ten iterations each (starter pack)"
    )
    opponents: dict[str, float] | list[str] | None = hyperparameter(
        None,
        'fraction of seats for opponents, e.g. {"past": 0.3, "runs/mine": 0.2}; or a list, e.g. '
        '["shipped", "my.onnx"], in which each opponent has as many seats as the learner',
    )
    start_from: str | None = hyperparameter(
        None,
        "initialize the weights from a policy: a .onnx file, a run, or a job's model artifacts "
        '(SageMaker: the channel "policy")',
    )
    ruleset: str = hyperparameter(
        ENV_CONFIG_DEFAULTS["ruleset"],
        "ruleset: standard, solo, royale, wrapped, constrictor or wrapped_constrictor",
    )
    map: str = hyperparameter(ENV_CONFIG_DEFAULTS["map"], "map name; see `battlesnake-gym maps`")
    observation: str = hyperparameter(
        ENV_CONFIG_DEFAULTS["observation"], "observation type; see docs/reference/observations.md"
    )
    frame_stack: int | None = hyperparameter(
        None, "number of turns stacked in one observation, 1 to 8 (default: 1)"
    )
    max_turns: int | None = hyperparameter(
        ENV_CONFIG_DEFAULTS["max_turns"], "turn at which a game ends; null for no limit", minimum=1
    )
    settings: dict[str, int] | None = hyperparameter(
        None, 'settings of the rules, e.g. {"minimum_food": 3}; see docs/reference'
    )
    view_radius: int | None = hyperparameter(
        None,
        "each snake sees only the cells within this distance of its head; sets view_radius in "
        "--settings (default: all cells)",
    )
    food_rng: str = hyperparameter(
        ENV_CONFIG_DEFAULTS["food_rng"], "random numbers of food: fast, or official"
    )
    rewards: str | dict[str, float] | list[Any] = hyperparameter(
        ENV_CONFIG_DEFAULTS["rewards"],
        "reward preset, weights by event, or a list with one entry per seat; see "
        "docs/reference/rewards.md",
    )
    start_positions: list[list[int]] | None = hyperparameter(
        None, "start cell [x, y] of each snake (default: chosen by the map)"
    )
    food_positions: list[list[int]] | None = hyperparameter(
        None, "initial food cells [x, y]; needs --start-positions (default: chosen by the map)"
    )
    policy_sharing: str = hyperparameter(
        "shared",
        "one policy for all snakes (shared), or one policy per seat (per_seat; RLLIB_PPO only)",
    )
    action_mask: str = hyperparameter(
        ENV_CONFIG_DEFAULTS["action_mask"],
        "action mask: none, wall, neck, body, health, head, fatal, or several joined with +",
    )
    allow_python_engine: bool = hyperparameter(
        False, "train even if the C engine is not compiled (many times slower)"
    )

    @property
    def run_name(self) -> str:
        """Experiment's name, or a name such as ``DISTIL-11x11-2``."""
        if self.experiment is not None:
            return Path(self.experiment).stem
        algorithm = self.algorithm.rpartition(":")[2]
        if not self.has_games:  # type: ignore[attr-defined]
            return algorithm
        snakes = self.num_snakes if isinstance(self.num_snakes, list) else [self.num_snakes]
        size = f"{self.board_size}x{self.board_size}"
        return f"{algorithm}-{size}-{'-'.join(map(str, snakes))}"

    def recorded(self) -> dict[str, Any]:
        """Return the hyperparameters that the run directory shows, without unused rewards."""
        recorded = super().recorded()
        if not self.uses_rewards:  # type: ignore[attr-defined]
            del recorded["rewards"]
        return recorded

    def __post_init__(self) -> None:
        super().__post_init__()
        env_config = {
            **{name: getattr(self, name) for name in ENV_CONFIG_DEFAULTS if hasattr(self, name)},
            "width": self.board_size,
            "height": self.board_size,
            "curriculum": self.curriculum or [],
            "opponents": _resolve_opponents(seat_fractions(self.opponents or {})),
        }
        if self.view_radius is not None:
            settings = {"view_radius": self.view_radius} | (self.settings or {})
            if settings["view_radius"] != self.view_radius:
                raise HyperparameterError(
                    f"view_radius is {self.view_radius}, but settings has view_radius "
                    f"{settings['view_radius']}; omit view_radius in settings"
                )
            env_config["settings"] = settings
        object.__setattr__(self, "env_config", env_config)

    @classmethod
    def complete(cls, given: dict[str, Any]) -> Completion:
        """Return the dataclass and the defaults of the selected experiment and algorithm."""
        messages = starter_pack.translate_hyperparameters(given)
        experiment, presets = given.get("experiment"), {}
        if experiment is not None:
            presets = experiments.load_experiment(str(experiment))
        elif "algorithm" not in given:
            presets = experiments.load_experiment(DEFAULT_EXPERIMENT)
            messages.append(f"trains the experiment {DEFAULT_EXPERIMENT}: no algorithm is set")
        algorithm = str(given.get("algorithm", presets.get("algorithm", cls.algorithm)))
        if ".py:" in algorithm:
            from battlesnake_rl.mabs import algorithms

            settings = algorithms.base_config(algorithm).settings_class
        else:
            settings = settings_class(algorithm)
        hyperparameters = _hyperparameters_for(settings)
        known = [*hyperparameters.field_names(), f"{CONFIG_PREFIX}model_config"]

        def unknown_name(name: str) -> HyperparameterError:
            """Return the error for a hyperparameter that the algorithm lacks."""
            return missing_setting_error(algorithm, name) or unknown_name_error(name, known)

        return Completion(
            hyperparameters,
            {"algorithm": algorithm} | settings.env_defaults | presets,
            messages,
            help_flags=[
                f"--{field.name.rstrip('_').replace('_', '-')}"
                for field in fields(settings)
                if {"algorithm", "experiment"} & given.keys()
            ],
            unknown_name=unknown_name,
        )

    def check_early(self, overrides: Mapping[str, Any]) -> None:
        """Check the games and the names of RLlib's settings without torch and Ray."""
        from battlesnake_rl.mabs.envs.env_factory import make_vector_env

        chosen: Any = self
        prefix = "env_config."
        games: dict[str, Any] = {}
        for name, value in overrides.items():
            missing = missing_setting_error(self.algorithm, CONFIG_PREFIX + name)
            if missing and not chosen.uses_rllib_runners:
                raise missing
            if name == "env_config" and isinstance(value, dict):
                games |= value
            elif name.startswith(prefix):
                games[name.removeprefix(prefix)] = value
            else:
                supported_settings.check_name(chosen, self.algorithm, name, value)
        env_config = chosen.env_config | games
        chosen.check_games(self, self.algorithm, env_config, self.policy_sharing)
        counts = env_config["num_snakes"]
        make_vector_env(len(counts) if isinstance(counts, list) else 1, env_config)
        env_options(env_config).check_settings(env_config["settings"] or (), "settings: ")


@functools.cache
def _hyperparameters_for(settings: type[AlgorithmSettings]) -> type[BattlesnakeHyperparameters]:
    """Return the dataclass of all hyperparameters of an algorithm."""
    name = settings.__name__.replace("Settings", "Hyperparameters")
    return make_dataclass(name, [], bases=(BattlesnakeHyperparameters, settings), frozen=True)


class BattlesnakeLauncher(SageMakerRayLauncher):
    """Train a Battlesnake policy with Ray RLlib.

    Without --experiment and --algorithm, the experiment is duel-distil: DISTIL imitates a
    search in duels on an 11x11 board. With --algorithm, --help shows the settings of the
    algorithm. All snakes in a game share one policy (see --policy-sharing). A stop condition is
    required: --minutes, --cpu-minutes, --num-iters or --env-steps.

    The run directory RUNS/NAME contains progress.csv, tensorboard/, checkpoints/, and at the end
    model/policy.onnx with policy.json. Examples:

      battlesnake-gym train --minutes 3
      battlesnake-gym train --algorithm APEX --board-size 7 --num-snakes 2 --num-iters 50
      battlesnake-gym train --experiment hill-vanilla --minutes 60
      battlesnake-gym train --minutes 10 --lr 1e-4
      battlesnake-gym train --algorithm PPO --help
    """

    hyperparameters_class = BattlesnakeHyperparameters
    channels = (_POLICY_CHANNEL, _OPPONENTS_CHANNEL)
    main_curves = MappingProxyType(
        {
            "elo": "elo",
            "elo_best": "elo_best",
            "reward": "env_runners/episode_return_mean",
            "length": "env_runners/episode_len_mean",
            "longest_snake": "env_runners/Longest_snake",
            "kills": "env_runners/Killed_another_snake",
            "deaths_wall_collision": "env_runners/Snake_hit_wall",
            "deaths_body_collision": "env_runners/Snake_hit_body",
            "deaths_head_collision": "env_runners/Snake_was_eaten",
            "deaths_out_of_health": "env_runners/Starved",
            "q_loss": "learners/default_policy/qf_loss",
            "env_steps": "env_runners/num_env_steps_sampled_lifetime",
        }
    )

    def register_env_creator(self) -> None:
        """Register the multi-agent environment under the name "battlesnake"."""
        from ray.tune.registry import register_env

        from battlesnake_rl.mabs.envs.multi_agent_env import BattlesnakeMultiAgentEnv

        register_env(ENV_NAME, BattlesnakeMultiAgentEnv)

    @functools.cached_property
    def csv_columns(self) -> Mapping[str, str]:  # type: ignore[override]
        """Result keys of additional columns of ``progress.csv``."""
        from battlesnake_rl.mabs.strength.ladder_evaluator import LADDER_COLUMNS
        from sagemaker_rl.runs.curves import CSV_COLUMNS

        names = [name for name in GAME_METRICS if name not in CSV_COLUMNS]
        return {name: f"env_runners/{name}" for name in names} | {
            "agent_steps": "env_runners/num_agent_steps_sampled_lifetime/default_agent",
            "transitions_trained": "learners/default_policy/num_module_steps_trained_lifetime",
            "qf_loss": "learners/default_policy/qf_loss",
            "qf_mean": "learners/default_policy/qf_mean",
            "entropy": "learners/default_policy/entropy",
            "vf_loss": "learners/default_policy/vf_loss",
            "promotions": "promotions",
        } | LADDER_COLUMNS  # fmt: skip

    def get_experiment_config(self, hyperparameters: BattlesnakeHyperparameters) -> AlgorithmConfig:
        """Return the RLlib configuration of the selected algorithm and games."""
        from battlesnake_gym.engine import engine
        from battlesnake_rl.mabs import algorithms
        from battlesnake_rl.mabs.policy import warm_start

        if not engine.COMPILED:
            _check_engine_compiled(hyperparameters)
        chosen: Any = hyperparameters
        config = algorithms.configure(chosen.algorithm, chosen.env_config, chosen.policy_sharing)
        config.apply(hyperparameters)
        if not self.dry_run:
            config.settings_class.install_packages()
        if hyperparameters.network is not None:
            algorithms.use_custom_network(config, hyperparameters.network)
        start_from = _resolve_start_from(hyperparameters.start_from)
        if start_from or _POLICY_CHANNEL in channel_names():
            warm_start.apply_start_from(config, start_from)
        return config.debugging(seed=hyperparameters.seed, log_level="ERROR")

    def plan_resources(self, config: AlgorithmConfig, cpus: int) -> ResourcePlan:
        """Return the default number of env runners, and the expected utilization.

        For a learner on a CPU, the number of env runners that saturate the learner is known.
        """
        settings: Any = config.settings_class
        usual = super().plan_resources(config, cpus)
        busy, gpus = usual.cpus, usual.gpus if settings.uses_gpu else 0
        # No other opponents were measured (docs/research/scaling.md).
        is_measured = not config.env_config.get("opponents", {}).keys() - {PAST_SELF}
        if is_measured and not (gpus and config.num_gpus_per_learner):
            runners = settings.saturating_env_runners(getattr(config, "settings", config))
            busy = min(busy, 1 + runners * max(config.num_learners, 1))
        return ResourcePlan(settings.default_num_env_runners(cpus), busy, gpus)

    def checkpoint_identity(self, config: AlgorithmConfig) -> dict[str, Any]:
        """Return the settings that a checkpoint and the resuming run must share.

        Raises:
            ValueError: If a frozen policy does not fit the games, or if a setting is invalid.
        """
        from battlesnake_rl.mabs import algorithms

        own = getattr(config, "checkpoint_identity", None)
        identity: dict[str, Any] = own() if own else algorithms.checkpoint_identity(config)
        return {"algorithm": config.algo_class.__name__} | identity

    def export_model(
        self, config: AlgorithmConfig, checkpoint: Path, model_dir: Path
    ) -> tuple[str, str, str]:
        """Write the trained policy or evaluation, and return the texts of the last log lines."""
        from battlesnake_rl.mabs.checkpoint_export import export_checkpoint
        from battlesnake_rl.mabs.strength.ladder_evaluator import StrengthHistory

        record = StrengthHistory.load(checkpoint)
        strength = record.elo_summary()
        if record.best is not None:
            log_line(record.score_table())
        if _is_default_training(config):
            log_line(_published_elo_line())
        if own := getattr(config, "export_model", None):
            return strength, *own(checkpoint, model_dir)
        if record.best is None:
            strength += ", or run `battlesnake-gym evaluate`"
        policy = export_checkpoint(checkpoint, model_dir / "policy.onnx")
        command = f"battlesnake-gym serve --policy {shlex.quote(str(policy))}"
        return strength, str(policy), command


def _published_elo_line() -> str:
    """Return the published Elo for the class of this processor as one line of text."""
    import torch

    from battlesnake_rl.mabs.policy.q_network import uses_bfloat16

    kind, elo = _PUBLISHED_ELO[uses_bfloat16({}, torch.device("cpu"))]
    return (
        f"published: {elo} Elo after 3 CPU minutes of the default experiment on processors "
        f"{kind}, such as this one"
    )


def _is_default_training(config: AlgorithmConfig) -> bool:
    """Return whether the algorithm and the games are those of the default experiment."""
    completion = BattlesnakeHyperparameters.complete({})
    default: Any = completion.hyperparameters_class(**completion.presets)
    return (config.algo_class.__name__, config.env_config) == (
        default.algorithm,
        vars(env_options(default.env_config)),
    )


def _resolve_start_from(given: str | None) -> str | None:
    """Return the path of the initial policy, or None.

    The path is ``given`` or the job's channel ``policy``.

    Raises:
        HyperparameterError: If both the hyperparameter and the channel are set.
    """
    if given == "":
        raise HyperparameterError("start_from must be a path, got ''; omit it for new weights")
    channel = channel_folder(_POLICY_CHANNEL)
    if given is not None and _POLICY_CHANNEL in channel_names():
        raise HyperparameterError(
            f"start_from is {given!r}, but the job also has the data channel {_POLICY_CHANNEL!r}; "
            "set only one source"
        )
    return given if channel is None else str(channel)


def _resolve_opponents(fractions: Mapping[str, float]) -> dict[str, float]:
    """Return ``fractions`` with paths resolved in the job's channel ``opponents``.

    Raises:
        HyperparameterError: If the channel exists, but no opponent names a file of the channel.
    """
    if _OPPONENTS_CHANNEL not in channel_names():
        return with_absolute_paths(fractions)
    directory = channel_folder(_OPPONENTS_CHANNEL)
    from_channel = [
        name
        for name in fractions
        if snakes.is_path(spec := SnakeSpec.parse(name)) and not Path(spec.path).is_absolute()
    ]
    if not from_channel:
        there = sorted(path.name for path in directory.iterdir()) if directory else []
        raise HyperparameterError(
            f"none of the opponents is a file in the data channel {_OPPONENTS_CHANNEL!r} "
            f"({', '.join(there)}); name its files in the hyperparameter opponents, such as "
            '{"policy:model": 0.2, "mine.zip": 0.1}'
        )
    if directory is None:  # In a preflight check, `hungry` takes the seats of the missing files.
        check_fractions(fractions, check_names=False)
        kept = {name: one for name, one in fractions.items() if name not in from_channel}
        taken = sum(fractions[name] for name in from_channel)
        return kept | {"hungry": kept.get("hungry", 0.0) + taken}
    return with_absolute_paths(fractions, directory)


def _check_engine_compiled(hyperparameters: BattlesnakeHyperparameters) -> None:
    """Check that the C engine is compiled.

    If ``allow_python_engine`` is set, the function logs a warning instead of an error.

    Raises:
        HyperparameterError: If the C engine is missing.
    """
    from battlesnake_gym.engine import build_check, engine

    reason = build_check.missing_reason("battlesnake_gym.engine._engine")
    why = f"the compiled engine is missing ({reason})"
    if not hyperparameters.allow_python_engine:
        raise HyperparameterError(
            f"{why}; {engine.SLOW_RULES_WARNING}; to fix it: {build_check.BUILD_HINT} (in a job: "
            "rebuild its image from these sources), or set allow_python_engine"
        )
    log_line(f"{why}; {engine.SLOW_RULES_WARNING}; allowed by allow_python_engine")
