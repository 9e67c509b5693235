"""Settings of the training algorithms, one dataclass per algorithm.

The fields are the options of ``train``, hyperparameters of jobs and experiments, and arguments of
``training()`` of RLlib's configurations. Creating an instance checks all values. This module
imports neither torch nor Ray.

>>> PPOSettings(gamma=0.99).gamma
0.99
>>> PPOSettings(gamma=2)  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
sagemaker_rl.job.hyperparameters.HyperparameterError: gamma must be at least 0 and at most 1, ...
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_rl.mabs.envs.training_env_config import (
    ENV_CONFIG_DEFAULTS,
    TrainingEnvConfig,
    env_options,
)
from battlesnake_rl.mabs.settings.base_settings import AlgorithmSettings
from sagemaker_rl.job.hyperparameters import HyperparameterError, setting

_ENV_STEP_SCHEDULE = "a number, or points [[env_steps, value], ...]"
_SCHEDULE = f"{_ENV_STEP_SCHEDULE} (last position 1: fractions of the run)"

_learning_rate = functools.partial(
    setting, help_text=f"learning rate of Adam: {_SCHEDULE}", above=0
)
_discount = functools.partial(setting, help_text="discount factor per turn", minimum=0, maximum=1)
_grad_clip = functools.partial(
    setting, help_text="maximum global norm of the gradients; null disables clipping", above=0
)
_gae_lambda = functools.partial(
    setting,
    help_text="parameter of generalized advantage estimation",
    aliases=("lambda",),
    minimum=0,
    maximum=1,
)
_clip = functools.partial(
    setting, help_text="maximum change of the importance ratio from 1", minimum=0, maximum=1
)
_entropy = functools.partial(
    setting, help_text=f"weight of the entropy bonus: {_SCHEDULE}", minimum=0
)
_value_weight = functools.partial(setting, help_text="weight of the value loss", minimum=0)
_games = functools.partial(setting, help_text="parallel games per env runner", minimum=1)
_minibatch = functools.partial(
    setting, target="minibatch_size", aliases=("minibatch_size",), minimum=1
)
_symmetry = functools.partial(setting, help_text="train on random symmetries of a square board")


@dataclass(frozen=True)
class BatchedSettings(AlgorithmSettings):
    """Settings of the algorithms with this project's env runners."""

    lr: float | list[Any] = _learning_rate(1e-4)
    grad_clip: float | None = _grad_clip(0.5)
    adam_epsilon: float = setting(1e-5, "epsilon of Adam", above=0)
    num_envs_per_env_runner: int = _games(64)
    rollout_fragment_length: int = setting(16, "turns of each game in one fragment", minimum=1)
    symmetry_augmentation: bool = _symmetry(False)

    @classmethod
    def _check_own_games(cls, settings: Any, env_config: Mapping[str, Any]) -> None:
        if settings.symmetry_augmentation:
            games = env_options(env_config)
            seen = games.observation_encoder
            if games.width != games.height or seen.relative:
                raise HyperparameterError(
                    "symmetry_augmentation needs square boards and moves that do not depend on a "
                    f"snake's direction, got {games.width}x{games.height} and {seen.name!r}; "
                    "set symmetry_augmentation to false"
                )


@dataclass(frozen=True)
class DQNSettings(BatchedSettings):
    """Settings of DQN."""

    config_class = "battlesnake_rl.mabs.dqn.dqn:DQNConfig"
    samples_in_driver = True
    extra_fields = "tau dueling double_q td_error_loss_fn store_buffer_in_checkpoints"

    gamma: float = _discount(0.97)
    batch_size: int = setting(
        512, "transitions per update", target="train_batch_size_per_learner", minimum=1
    )
    n_step: int = setting(3, "turns between a state and its next state", minimum=1, maximum=255)
    training_intensity: float = setting(2.0, "trained transitions per sampled transition", above=0)
    reward_scale: float = setting(
        0.03, "factor on the rewards in training; TD errors should be below 1", above=0
    )
    epsilon: float | list[Any] = setting(
        [[0, 1.0], [40_000, 0.05]],
        f"probability of a random move: {_ENV_STEP_SCHEDULE}",
        minimum=0,
        maximum=1,
        last_position=2,
    )
    epsilon_per_game: list[float] | None = setting(
        None, "[base, exponent] of a constant epsilon per game, which replaces --epsilon"
    )
    target_network_update_freq: int = setting(
        10_000, "env steps between two updates of the target network", minimum=1
    )
    num_steps_sampled_before_learning_starts: int = setting(
        5_000, "env steps before the first update", minimum=0
    )
    replay_capacity: int = setting(
        200_000,
        "observations in the replay buffer",
        target="replay_buffer_config.capacity",
        minimum=1,
    )
    replay_alpha: float = setting(
        0.6, "exponent of the priorities", target="replay_buffer_config.alpha", minimum=0
    )
    replay_beta: float = setting(
        0.4, "exponent of the importance weights", target="replay_buffer_config.beta", minimum=0
    )
    grad_clip: float | None = _grad_clip(40.0)
    adam_epsilon: float = setting(1e-8, "epsilon of Adam", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = self.epsilon_per_game
        if pair is not None and not (
            len(pair) == 2
            and all(type(one) in (int, float) for one in pair)
            and 0 <= pair[0] <= 1
            and pair[1] >= 0
        ):
            raise HyperparameterError(
                "epsilon_per_game must be [base, exponent] with a base in [0, 1] and an exponent "
                f"of at least 0, such as [0.4, 7.0], got {pair}"
            )
        default = self.__dataclass_fields__["epsilon"].metadata["default"]
        if pair is not None and self.epsilon != default:
            raise HyperparameterError(
                f"epsilon is {self.epsilon}, but epsilon_per_game {pair} replaces it; omit epsilon "
                "or set epsilon_per_game to null"
            )


@dataclass(frozen=True)
class APEXSettings(DQNSettings):
    """Settings of APEX."""

    config_class = "battlesnake_rl.mabs.dqn.apex:APEXConfig"
    samples_in_driver = False
    is_variant = True

    epsilon_per_game: list[float] | None = setting(
        [0.4, 7.0], "[base, exponent] of a constant epsilon per game, which replaces --epsilon"
    )
    num_replay_shards: int | None = setting(
        None,
        "processes that share the replay buffer (default: depends on --num-env-runners)",
        minimum=1,
    )
    broadcast_interval: int = setting(
        10, "updates between two broadcasts of the weights", minimum=1
    )

    @staticmethod
    def saturating_env_runners(settings: Any) -> float:
        """Return the number of env runners that saturate one learner on a CPU."""
        return float(0.28 / settings.training_intensity)


@dataclass(frozen=True)
class _PPOBaseSettings(BatchedSettings):
    """Settings of PPO and RECURRENT_PPO."""

    samples_in_driver = True

    lr: float | list[Any] = _learning_rate([[0, 5e-4], [6_000_000, 1e-4], [18_000_000, 3e-5]])
    gamma: float = _discount(0.998)
    batch_size: int = _minibatch(1024, "moves per update")
    num_epochs: int = setting(2, "passes over each batch of rollouts", minimum=1)
    lambda_: float = _gae_lambda(0.95)
    clip_param: float = _clip(0.2)
    vf_loss_coeff: float = _value_weight(0.25)
    entropy_coeff: float | list[Any] = _entropy([[0, 0.02], [2_000_000, 0.01], [6_000_000, 0.002]])
    num_envs_per_env_runner: int = _games(256)
    rollout_fragment_length: int = setting(32, "turns of each game in one fragment", minimum=1)


@dataclass(frozen=True)
class PPOSettings(_PPOBaseSettings):
    """Settings of PPO."""

    config_class = "battlesnake_rl.mabs.ppo.ppo:PPOConfig"

    batch_size: int = _minibatch(512, "moves per update")
    min_train_probability: float = setting(
        0.2,
        "minimum probability that a pass trains on a move; 1 trains on all moves",
        above=0,
        maximum=1,
    )
    kickstart_coeff: float | list[Any] = setting(
        [[0, 0.5], [500_000, 0.0]],
        f"weight of the cross-entropy to the policy of --start-from: {_SCHEDULE}",
        minimum=0,
    )
    async_sampling: bool = setting(False, "let env runners play while the learner trains (V-trace)")


@dataclass(frozen=True)
class RecurrentPPOSettings(_PPOBaseSettings):
    """Settings of RECURRENT_PPO."""

    config_class = "battlesnake_rl.mabs.ppo.recurrent_ppo:RecurrentPPOConfig"
    is_variant = True

    gru_size: int = setting(128, "numbers in the recurrent state of a snake", minimum=1)
    full_board_critic: bool = setting(
        True, "train the values on the complete board, which the exported policy does not see"
    )

    @classmethod
    def _check_own_games(cls, settings: Any, env_config: Mapping[str, Any]) -> None:
        super()._check_own_games(settings, env_config)
        seen = env_options(env_config).observation_encoder
        if settings.full_board_critic and not seen.in_engine:
            raise HyperparameterError(
                f"full_board_critic needs a built-in observation, got {seen.name!r}; disable it"
            )


@dataclass(frozen=True)
class DISTILSettings(BatchedSettings):
    """Settings of DISTIL."""

    config_class = "battlesnake_rl.mabs.distil.distil:DISTILConfig"
    uses_rewards = False

    lr: float | list[Any] = _learning_rate([[0, 1e-3], [1, 3e-4]])
    batch_size: int = _minibatch(1024, "labels per update")
    # Smaller searches may end before all moves have a value.
    expert_nodes: int = setting(500, "nodes per search of the expert", minimum=100)
    expert_action_fraction: float = setting(
        0.2, "fraction of games in which the expert selects the moves", minimum=0, maximum=1
    )
    label_buffer_size: int = setting(300_000, "maximum number of labels in the buffer", minimum=1)
    max_replay_ratio: float = setting(
        16.0,
        "maximum ratio of trained to new labels; lower if several fragments arrive at a time",
        minimum=0,
    )
    vf_loss_coeff: float = _value_weight(0.5)
    symmetry_augmentation: bool = _symmetry(True)

    @classmethod
    def _check_own_games(cls, settings: Any, env_config: Mapping[str, Any]) -> None:
        """Check that the search supports the games, and that no rewards are set."""
        from battlesnake_heuristics.search.search import MAX_SEARCH_BOARD_SIZE

        games = env_options(env_config)
        if games.rewards != TrainingEnvConfig.rewards:
            raise HyperparameterError(
                f"rewards is {games.rewards!r}, but DISTIL imitates the search and ignores "
                "rewards; leave rewards out, or add --algorithm PPO or DQN"
            )
        if (size := int(np.max([games.width, games.height]))) > MAX_SEARCH_BOARD_SIZE:
            raise HyperparameterError(
                f"board_size is {size}, but DISTIL's search supports at most "
                f"{MAX_SEARCH_BOARD_SIZE}; use PPO"
            )
        super()._check_own_games(settings, env_config)

    @staticmethod
    def saturating_env_runners(settings: Any) -> float:
        """Return the number of env runners that saturate one learner on a CPU."""
        return float(3.7 * settings.expert_nodes / 500)


@dataclass(frozen=True)
class RLlibPPOSettings(AlgorithmSettings):
    """Settings of RLlib's own PPO."""

    config_class = "battlesnake_rl.mabs.ppo.rllib_ppo:RLlibPPOConfig"
    is_variant = True
    supports_game_mixes = False
    uses_rllib_runners = True

    lr: float | list[Any] = setting(
        3e-4, f"learning rate of Adam: {_ENV_STEP_SCHEDULE}", above=0, last_position=2
    )
    gamma: float = _discount(0.97)
    batch_size: int = setting(
        8192, "moves per iteration", target="train_batch_size_per_learner", minimum=1
    )
    minibatch_size: int = setting(512, "moves per update", minimum=1)
    num_epochs: int = setting(3, "passes over each batch", minimum=1)
    lambda_: float = _gae_lambda(0.95)
    clip_param: float = _clip(0.3)
    vf_loss_coeff: float = _value_weight(1.0)
    vf_clip_param: float = setting(math.inf, "maximum value loss of one move", above=0)
    entropy_coeff: float | list[Any] = setting(
        0.01, f"weight of the entropy bonus: {_ENV_STEP_SCHEDULE}", minimum=0, last_position=2
    )
    kl_coeff: float = setting(0.2, "initial weight of the KL divergence", minimum=0)
    grad_clip: float | None = _grad_clip(None)
    num_envs_per_env_runner: int = _games(16)


@dataclass(frozen=True)
class EXITSettings(AlgorithmSettings):
    """Settings of expert iteration."""

    config_class = "battlesnake_rl.mabs.exit.exit:EXITConfig"
    supports_game_mixes = False
    has_games = False
    uses_rewards = False
    uses_gpu = False

    moves_per_iteration: int = setting(100_000, "searched moves per iteration", minimum=1)
    moves_per_fragment: int = setting(6_000, "maximum searched moves per fragment", minimum=1)
    deep_search_after_moves: int = setting(
        0, "moves before the deep search; 0 disables it", minimum=0
    )
    epochs: float = setting(1.0, "passes over the buffered samples per iteration", above=0)
    bootstrap_epochs: float = setting(4.0, "value of --epochs before the first promotion", above=0)
    lr: float = setting(1.5e-3, "initial learning rate of each fit", above=0)
    bootstrap_lr: float = setting(3e-3, "value of --lr before the first promotion", above=0)
    buffer_iterations: int = setting(16, "latest iterations whose samples are buffered", minimum=1)
    bootstrap_buffer_iterations: int = setting(
        16, "iterations that keep the first samples", minimum=1
    )
    kept_fraction: float = setting(1.0, "buffered fraction of the samples", above=0, maximum=1)
    match_pairs: int = setting(40, "maximum game pairs per match; 0 promotes always", minimum=0)
    match_nodes: int = setting(100, "nodes per move in the match", minimum=1)
    elo0: float = setting(-30.0, "Elo difference of the match's null hypothesis")
    elo1: float = setting(10.0, "Elo difference of the match's alternative hypothesis")
    ladder_cpu_fraction: float = setting(
        0.04, "maximum CPU fraction of ladder games", minimum=0, below=1
    )
    ladder_nodes: int = setting(100, "nodes per move of the champion in ladder games", minimum=1)
    root_noise: float = setting(0.25, "Dirichlet noise from three snakes on", minimum=0, below=1)

    @classmethod
    def _check_own_games(cls, settings: Any, env_config: Mapping[str, Any]) -> None:
        """Reject options of the games, because EXIT plays its own mix of games."""
        for name, value in env_config.items():
            if name not in ENV_CONFIG_DEFAULTS or value != ENV_CONFIG_DEFAULTS[name]:
                if name == "settings" and not value:
                    continue
                raise HyperparameterError(
                    f"{name} is {value!r}, but EXIT plays its own mix of games "
                    "(two to eight snakes, several boards and rulesets); leave the option out"
                )

    @classmethod
    def default_num_env_runners(cls, cpus: int) -> int:
        """Return the number of CPUs, because the driver sleeps during self-play."""
        return cpus

    @staticmethod
    def saturating_env_runners(settings: Any) -> float:
        """Return the number of env runners that saturate one learner on a CPU."""
        # In late games, the search visits six times as many nodes per move.
        return float(
            (228 if settings.deep_search_after_moves else 38)
            / (settings.buffer_iterations * settings.kept_fraction * settings.epochs)
        )


@dataclass(frozen=True)
class MXNETSettings(AlgorithmSettings):
    """Settings of the MXNet baseline; the starter pack published the defaults."""

    config_class = "battlesnake_rl.mabs.mxnet_dqn.mxnet_dqn:MXNETConfig"
    samples_in_driver = True
    is_variant = True
    supports_game_mixes = False
    uses_gpu = False
    uses_torch = False
    env_defaults: ClassVar[dict[str, Any]] = {"observation": "bordered-51s", "frame_stack": 2}

    lr: float = setting(5e-4, "initial learning rate of Adam", above=0)
    lr_halved_every: int = setting(
        500_000, "updates after which the learning rate is halved", minimum=1
    )
    gamma: float = _discount(0.95)
    batch_size: int = setting(64, "transitions per update", minimum=1)
    update_every: int = setting(20, "moves of a snake between two updates", minimum=1)
    warmup_batches: int = setting(
        3, "batches in the replay buffer of a snake before its first update", minimum=1
    )
    buffer_size: int = setting(5000, "transitions in the replay buffer of a snake", minimum=1)
    tau: float = setting(
        1e-3, "fraction by which an update moves the target network", above=0, maximum=1
    )
    epsilon_start: float = setting(
        1.0, "initial probability of a random move", minimum=0, maximum=1
    )
    epsilon_decay: float = setting(
        0.995, "factor on this probability after every game", above=0, maximum=1
    )
    epsilon_end: float = setting(0.01, "minimum of this probability", minimum=0, maximum=1)
    turns_per_iteration: int = setting(100, "turns per iteration (not published)", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffer_size <= (warm := self.warmup_batches * self.batch_size):
            raise HyperparameterError(
                f"buffer_size must be more than warmup_batches * batch_size, which is {warm}, got "
                f"{self.buffer_size}; increase it, because updates start with more transitions"
            )

    @classmethod
    def _check_own_games(cls, settings: Any, env_config: Mapping[str, Any]) -> None:
        """Reject options of the games that the baseline does not support."""
        for name in ("iterate_map_size", "clip_rewards"):
            if env_config.get(name):
                raise HyperparameterError(
                    f"{name} is {env_config[name]!r}, but MXNET has no {name}; leave it out"
                )
        seen, wanted = (env_options(one).observation for one in (env_config, cls.env_defaults))
        if seen != wanted:
            raise HyperparameterError(
                f"observation is {seen!r}, but MXNET always uses {wanted!r}; leave out observation "
                "and frame_stack"
            )

    @staticmethod
    def install_packages() -> None:
        """Check that the package mxnet is installed; a job installs it."""
        from sagemaker_rl.job import pinned_wheels

        pinned_wheels.MXNET.ensure_installed("algorithm MXNET")


ALGORITHMS: dict[str, type[AlgorithmSettings]] = {
    "DISTIL": DISTILSettings,
    "PPO": PPOSettings,
    "RECURRENT_PPO": RecurrentPPOSettings,
    "DQN": DQNSettings,
    "APEX": APEXSettings,
    "RLLIB_PPO": RLlibPPOSettings,
    "EXIT": EXITSettings,
    "MXNET": MXNETSettings,
}
"""Settings classes of the built-in algorithms, keyed by name."""


def settings_class(algorithm: str) -> type[AlgorithmSettings]:
    """Return the settings class of a built-in algorithm.

    Raises:
        HyperparameterError: If the algorithm is unknown.
    """
    if algorithm == "IMPALA":
        raise HyperparameterError(
            "algorithm IMPALA does not exist; use PPO with async_sampling true, which trains with "
            "V-trace while its env runners play"
        )
    if algorithm not in ALGORITHMS:
        raise HyperparameterError(
            f"{unknown_name_message('algorithm', algorithm, ALGORITHMS)}; or use FILE.py:NAME"
        )
    return ALGORITHMS[algorithm]


def missing_setting_error(algorithm: str, name: str) -> HyperparameterError | None:
    """Return the error for a setting that only other algorithms have, or None.

    Args:
        algorithm: Name of the algorithm without the setting.
        name: Name of the setting, as the user gave it.
    """
    plain = name.replace("-", "_")
    fields = {other: cls.field_names() for other, cls in ALGORITHMS.items()}
    having = [other for other, names in fields.items() if {name, plain} & names.keys()]
    if not having:
        return None
    shown = [one for one in having if not ALGORITHMS[one].is_variant] or having
    field = fields[having[0]].get(name) or fields[having[0]][plain]
    return HyperparameterError(
        f"{name}: {algorithm} has no {field.rstrip('_')}; add --algorithm {' or '.join(shown)}"
    )
