"""Launcher of Battlesnake training: hyperparameters, configuration and export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune.registry import register_env

from battlesnake_gym.engine import build_check, engine
from battlesnake_gym.env.opponent_names import (
    POLICY_PREFIX,
    is_file,
    seat_fractions,
    with_absolute_paths,
)
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.rules import MOVES
from battlesnake_heuristics.search.search import COMPILED
from battlesnake_rl.mabs import algorithms, experiments, starter_pack
from battlesnake_rl.mabs.base import supported_settings
from battlesnake_rl.mabs.base.game_metrics import GAME_METRICS
from battlesnake_rl.mabs.checkpoint_export import export_checkpoint
from battlesnake_rl.mabs.distil.distil import DISTILConfig
from battlesnake_rl.mabs.dqn.apex import APEX
from battlesnake_rl.mabs.dqn.dqn import DQN, DQNConfig
from battlesnake_rl.mabs.envs.env_factory import (
    ENV_CONFIG_DEFAULTS,
    ENV_NAME,
    head_plane_index,
    make_vector_env,
    sample_opponents,
)
from battlesnake_rl.mabs.mxnet_dqn.mxnet_dqn import MXNET
from battlesnake_rl.mabs.policy import warm_start
from battlesnake_rl.mabs.policy.actor_critic import PolicyNetwork
from battlesnake_rl.mabs.policy.q_network import (
    DuelingQNetwork,
    check_model_config,
    make_network,
    network_settings,
)
from battlesnake_rl.mabs.ppo.ppo import PPO, PPOConfig
from battlesnake_rl.mabs.settings.algorithm_settings import ALGORITHMS
from battlesnake_rl.mabs.strength import ladder_evaluator, sample_game
from battlesnake_rl.mabs.strength.published_elo import published_elo_line
from sagemaker_rl.job import pinned_wheels
from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX, HyperparameterError, hyperparameter
from sagemaker_rl.job.job_environment import channel_folder, channel_names, log_line
from sagemaker_rl.job.utilization import UsableResources
from sagemaker_rl.ray_launcher import Hyperparameters, RunSummary, SageMakerRayLauncher
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.curves import ENV_STEPS_RESULT
from sagemaker_rl.runs.training_run import CSV_COLUMNS

_POLICY_CHANNEL, _OPPONENTS_CHANNEL = "policy", "opponents"
"""Data channels of a job, for the initial policy and the opponents' files."""

DEFAULT_EXPERIMENT, _PPO_EXPERIMENT = "duel-distil", "duel-ppo"
"""Default experiment, and default experiment if only PPO supports the settings."""


@dataclass(frozen=True)
class BattlesnakeHyperparameters(Hyperparameters):
    """Hyperparameters of the games and of the training."""

    algorithm: str = hyperparameter(
        "DQN", "training algorithm: DISTIL, PPO, DQN, APEX, RLLIB_PPO, EXIT, MXNET, or FILE.py:NAME"
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


class BattlesnakeLauncher(SageMakerRayLauncher):
    """Train a Battlesnake policy with Ray RLlib.

    By default, all snakes in a game share one policy (see --policy-sharing). The default experiment
    is duel-distil: two snakes, and a policy that learns to imitate the champion's search. If you
    set an option that only PPO or DQN has, the default is the experiment duel-ppo or the algorithm
    DQN. A stop condition is required: --minutes, --cpu-minutes, --num-iters or --env-steps.

    The run directory RUNS/NAME contains progress.csv, tensorboard/, checkpoints/, and at the end
    model/policy.onnx with policy.json. Examples:
      train --minutes 3
      train --algorithm APEX --board-size 7 --num-snakes 2 --num-iters 50 --name small
      train --experiment hill-vanilla --minutes 60
      train --minutes 10 --rl.training.config.lr 1e-4
    """

    hyperparameters_class = BattlesnakeHyperparameters
    channels = (_POLICY_CHANNEL, _OPPONENTS_CHANNEL)
    csv_columns = CSV_COLUMNS | {
        name: f"env_runners/{name}" for name in GAME_METRICS if name not in CSV_COLUMNS
    } | {
        "agent_steps": "env_runners/num_agent_steps_sampled_lifetime/default_agent",
        "transitions_trained": "learners/default_policy/num_module_steps_trained_lifetime",
        "qf_loss": "learners/default_policy/qf_loss",
        "qf_mean": "learners/default_policy/qf_mean",
        "entropy": "learners/default_policy/entropy",
        "vf_loss": "learners/default_policy/vf_loss",
        "promotions": "promotions",
    } | ladder_evaluator.LADDER_COLUMNS  # fmt: skip

    main_curves = {  # noqa: RUF012  (a ClassVar of the base)
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
        "env_steps": ENV_STEPS_RESULT,
    }

    def register_env_creator(self) -> None:
        """Register the multi-agent environment under the name "battlesnake"."""
        register_env(ENV_NAME, algorithms.make_multi_agent_env)

    def get_experiment_config(self, hyperparameters: BattlesnakeHyperparameters) -> AlgorithmConfig:
        """Return the RLlib configuration of the selected algorithm and games."""
        if not engine.COMPILED:
            _check_engine_compiled(hyperparameters)
        config = algorithms.configure(
            hyperparameters.algorithm,
            {
                "num_snakes": hyperparameters.num_snakes,
                "width": hyperparameters.board_size,
                "height": hyperparameters.board_size,
                "curriculum": hyperparameters.curriculum or [],
                "iterate_map_size": hyperparameters.iterate_map_size,
                "opponents": _resolve_opponents(seat_fractions(hyperparameters.opponents or {})),
                "ruleset": hyperparameters.ruleset,
                "map": hyperparameters.map,
                "observation": hyperparameters.observation,
                "frame_stack": hyperparameters.frame_stack,
                "rewards": hyperparameters.rewards,
                "action_mask": hyperparameters.action_mask,
                "start_positions": hyperparameters.start_positions,
                "food_positions": hyperparameters.food_positions,
            },
            hyperparameters.policy_sharing,
        )
        if hyperparameters.network is not None:
            algorithms.use_custom_network(config, hyperparameters.network)
        if start_from := _resolve_start_from(hyperparameters.start_from):
            warm_start.apply_start_from(config, start_from)
        return config.debugging(seed=hyperparameters.seed, log_level="ERROR")

    def translate_legacy_hyperparameters(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Translate the starter pack's names to current names and log each translation."""
        values, messages = starter_pack.translate_hyperparameters(given)
        for line in messages:
            log_line(line)
        return values

    def experiment_defaults(
        self, given: Mapping[str, Any], before: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], str]:
        """Return default hyperparameters, and a log message about their choice.

        A selected experiment determines the default hyperparameters. If neither an experiment
        nor an algorithm is set, `_default_experiment` selects an experiment.
        """
        if (name := given.get("experiment")) is not None:
            return experiments.load_experiment(name), ""
        if "algorithm" in given:
            return getattr(ALGORITHMS.get(given["algorithm"]), "env_defaults", {}), ""
        name, reason = _default_experiment(given, before)
        why = f"no algorithm is set{reason and f', and {reason}'}"
        if name is None:
            return {"algorithm": "DQN"}, f"trains DQN: {why}"
        return experiments.load_experiment(name), f"trains the experiment {name}: {why}"

    def default_num_env_runners(self, config: AlgorithmConfig, cpus: int) -> int:
        """Return the default number of env runners.

        The number is 0 for DQN, PPO and MXNET. All other algorithms use one env runner per CPU;
        all of them except EXIT reserve one CPU for the driver.
        """
        if config.algo_class.__name__ == "EXIT":
            return cpus  # The driver sleeps during self-play.
        alone = issubclass(config.algo_class, DQN | PPO | MXNET) and not issubclass(
            config.algo_class, APEX
        )
        return 0 if alone else super().default_num_env_runners(config, cpus)

    def expected_utilization(self, config: AlgorithmConfig) -> UsableResources:
        """Limit the utilization to the measured number of saturating env runners.

        EXIT and MXNET use no GPU. For a learner on a GPU, the number of saturating env runners is
        unknown.
        """
        most = super().expected_utilization(config)
        gpus = 0 if config.algo_class.__name__ in ("EXIT", "MXNET") else most.gpus
        if (
            gpus and config.num_gpus_per_learner
        ):  # Saturating env runners were measured with a learner on a CPU only.
            return UsableResources(most.cpus, gpus)
        return UsableResources(
            min(most.cpus, 1 + algorithms.num_saturating_env_runners(config)), gpus
        )

    def default_run_name(self, hyperparameters: BattlesnakeHyperparameters) -> str:
        """Return the experiment's name, or a name such as ``DISTIL-11x11-2``."""
        if hyperparameters.experiment is not None:
            return Path(hyperparameters.experiment).stem
        if hyperparameters.algorithm == "EXIT":
            return "EXIT"
        size = hyperparameters.board_size
        algorithm = hyperparameters.algorithm.rpartition(":")[2]
        snakes = "-".join(map(str, np.atleast_1d(hyperparameters.num_snakes)))
        return f"{algorithm}-{size}x{size}-{snakes}"

    def recorded_settings(self, hyperparameters: BattlesnakeHyperparameters) -> dict[str, Any]:
        """Return the hyperparameters that the run directory shows, without unused rewards."""
        recorded = super().recorded_settings(hyperparameters)
        if hyperparameters.algorithm in ("DISTIL", "EXIT"):
            del recorded["rewards"]
        return recorded

    def check_host(self, config: AlgorithmConfig) -> None:
        """Check that MXNET finds its package; a job installs the package."""
        if issubclass(config.algo_class, MXNET):
            pinned_wheels.ensure_installed(pinned_wheels.MXNET, "algorithm MXNET")

    def checkpoint_identity(self, config: AlgorithmConfig) -> dict[str, Any]:
        """Return the settings that a checkpoint and the resuming run must share.

        The settings are the algorithm, the board size, the observation, the actions and the
        network. The method also checks that the opponents' frozen policies fit the games.

        Raises:
            ValueError: If a frozen policy does not fit the games, or if a setting is invalid.
        """
        if config.algo_class.__name__ == "EXIT":
            return {"algorithm": "EXIT", "games": config.games}
        environment = make_vector_env(1, config.env_config)
        if not issubclass(config.algo_class, MXNET):
            _check_network(config, environment)
        # Training must not start with frozen policies that do not fit these games.
        none = PastSelves(lambda weights: weights)
        sample_opponents(environment, config.env_config["opponents"], np.random.default_rng(), none)
        return {
            "algorithm": config.algo_class.__name__,
            "board_size": [config.env_config["width"], config.env_config["height"]],
            "observation": environment.observation.to_dict(),
            "observation_shape": list(environment.single_observation_space.shape),
            "actions": list(MOVES),
            "network": network_settings(config.model_config),
            **({"policies": sorted(config.policies)} if len(config.policies) > 1 else {}),
        }

    def on_training_end(self, algorithm: Any, results: dict[str, Any]) -> None:
        """Use the remaining ladder evaluation time to measure the final weights."""
        algorithm.conclude(results)

    def record_sample_game(self, algorithm: Any, path: Path, filmed: bool) -> bytes | None:
        """Record a game in which the exported policy plays all seats."""
        replay = algorithm.play_sample_game() if hasattr(algorithm, "play_sample_game") else None
        if replay is None:
            return None
        replay.save(path)
        return sample_game.to_gif(replay) if filmed else None

    def export_model(self, checkpoint: Path, model_dir: Path) -> RunSummary:
        """Write the policy files or EXIT's evaluation, and return a summary of the run."""
        record = ladder_evaluator.StrengthHistory.load(checkpoint)
        log_line(record.score_table())
        algorithm = checkpoints.read_metadata(checkpoint)["identity"]["algorithm"]
        if algorithm == "DISTIL":
            log_line(published_elo_line())
        if algorithm == "EXIT":
            return _export_evaluation(checkpoint, model_dir, record.elo_summary())
        policy = export_checkpoint(checkpoint, model_dir / "policy.onnx")
        return RunSummary(
            record.elo_summary(), str(policy), f"battlesnake-gym serve --policy {policy}"
        )


def _check_network(config: AlgorithmConfig, environment: VectorBattlesnake) -> None:
    """Check the settings of the network, and the initial policy.

    Raises:
        ValueError: If a setting is invalid, or if the initial policy does not fit.
    """
    if config.model_config.get("head_plane") not in (None, head_plane_index(config.env_config)):
        raise HyperparameterError(
            "rl.training.config.env_config.observation does not fit the network; set the "
            "hyperparameter observation instead"
        )
    kind = DuelingQNetwork if issubclass(config.algo_class, DQN) else PolicyNetwork
    shape = environment.single_observation_space.shape
    check_model_config(kind, shape, config.model_config)
    if config.start_from is not None:
        network = make_network(kind, shape, len(MOVES), network_settings(config.model_config))
        warm_start.check_start_from(network, environment, Path(config.start_from))


def _export_evaluation(checkpoint: Path, model_dir: Path, strength: str) -> RunSummary:
    """Write EXIT's best evaluation and return a summary of the run."""
    from battlesnake_heuristics.search.evaluation import Evaluation
    from battlesnake_rl.mabs.exit.exit import CHAMPION_FILE_NAME

    if not (checkpoint / CHAMPION_FILE_NAME).exists():
        return RunSummary(
            strength,
            "none: no network was as strong as the handcrafted weights yet",
            "resume with the same command and more --minutes",
        )
    champion = model_dir / CHAMPION_FILE_NAME
    Evaluation.load(checkpoint / CHAMPION_FILE_NAME).save(champion)
    return RunSummary(strength, str(champion), f"battlesnake-gym runs {model_dir.parent}")


def _default_experiment(
    given: Mapping[str, Any], before: Mapping[str, Any]
) -> tuple[str | None, str]:
    """Return the name of the default experiment for the hyperparameters in ``given``.

    Returns:
        The name of the experiment, or None for the default settings of DQN. The second value is the
        reason for the choice; the reason for `DEFAULT_EXPERIMENT` is "".
    """
    resumed = before and before.get("algorithm", "DQN")
    if resumed in ("DQN", "PPO"):
        name = None if resumed == "DQN" else _PPO_EXPERIMENT
        return name, f"the resumed run uses {resumed}"
    distils, ppos, dqns = map(
        supported_settings.supported_fields, (DISTILConfig(), PPOConfig(), DQNConfig())
    )
    settings = {name: name.removeprefix(CONFIG_PREFIX).partition(".")[0] for name in given}
    for name, setting in settings.items():
        if setting in dqns - ppos - distils:
            return None, f"only DQN and APEX have {name}"
    for name, setting in settings.items():
        if setting == "rewards" or setting in ppos - distils:
            return _PPO_EXPERIMENT, f"DISTIL has no {name}"
    if not COMPILED:
        return _PPO_EXPERIMENT, "DISTIL needs the C search, which is not compiled"
    return DEFAULT_EXPERIMENT, ""


def _resolve_start_from(given: str | None) -> str | None:
    """Return the path of the initial policy, or None.

    The path is ``given`` or the job's channel ``policy``.

    Raises:
        HyperparameterError: If both the hyperparameter and the channel are set.
    """
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
        if is_file(name) and not Path(name.removeprefix(POLICY_PREFIX)).is_absolute()
    ]
    if not from_channel:
        there = sorted(path.name for path in directory.iterdir()) if directory else []
        raise HyperparameterError(
            f"none of the opponents is a file in the data channel {_OPPONENTS_CHANNEL!r} "
            f"({', '.join(there)}); name its files in the hyperparameter opponents, such as "
            '{"policy:model": 0.2, "mine.zip": 0.1}'
        )
    if directory is None:  # In a preflight check, the channel does not exist yet.
        return {name: fraction for name, fraction in fractions.items() if name not in from_channel}
    return with_absolute_paths(fractions, directory)


def _check_engine_compiled(hyperparameters: BattlesnakeHyperparameters) -> None:
    """Check that the C engine is compiled.

    If ``allow_python_engine`` is set, the function logs a warning instead of an error.

    Raises:
        HyperparameterError: If the C engine is missing.
    """
    reason = build_check.missing_reason("battlesnake_gym.engine._engine")
    why = f"the compiled engine is missing ({reason})"
    if not hyperparameters.allow_python_engine:
        raise HyperparameterError(
            f"{why}; {engine.SLOW_RULES_WARNING}; to fix it: {build_check.BUILD_HINT} (in a job: "
            "rebuild its image from these sources), or set allow_python_engine"
        )
    log_line(f"{why}; {engine.SLOW_RULES_WARNING}; allowed by allow_python_engine")
