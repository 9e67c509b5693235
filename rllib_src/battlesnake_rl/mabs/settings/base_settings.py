"""Settings of every algorithm, and what an algorithm states about itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sagemaker_rl.job.hyperparameters import CheckedFields, HyperparameterError, setting

SHARED_POLICY, POLICY_PER_SEAT = "shared", "per_seat"
"""Values of ``policy_sharing``: one policy for all snakes, or one per seat."""

_GAME_MIX_ALGORITHMS = "PPO, RECURRENT_PPO, DISTIL, DQN or APEX"
"""Algorithms with `AlgorithmSettings.supports_game_mixes`, for error messages."""


@dataclass(frozen=True)
class AlgorithmSettings(CheckedFields):
    """Settings of every algorithm, and what an algorithm needs and supports."""

    config_class: ClassVar[str]
    """Class of RLlib's configuration, ``MODULE:CLASS``."""
    is_variant: ClassVar[bool] = False
    """Whether error messages recommend another algorithm with the same settings instead."""
    supports_game_mixes: ClassVar[bool] = True
    """Whether games may have opponents, a curriculum, or different numbers of snakes."""
    env_defaults: ClassVar[dict[str, Any]] = {}
    """Options of the games whose defaults differ from the defaults of other algorithms."""
    extra_fields: ClassVar[str] = ""
    """Further fields of RLlib's configuration that have an effect, separated by spaces."""
    uses_rllib_runners: ClassVar[bool] = False
    """Whether RLlib's own env runners and learners train the policies.

    Only then, each seat may have its own policy, and all fields of RLlib's configuration have an
    effect.
    """
    has_games: ClassVar[bool] = True
    """Whether the options of the games have an effect."""
    samples_in_driver: ClassVar[bool] = False
    """Whether sampling and training take turns in one process by default."""
    uses_rewards: ClassVar[bool] = True
    """Whether the rewards of the games have an effect."""
    uses_gpu: ClassVar[bool] = True
    """Whether the learner uses a GPU."""
    uses_torch: ClassVar[bool] = True
    """Whether the network is one of this project's torch networks."""

    ladder_cpu_fraction: float = setting(
        0.05, "maximum fraction of the CPU time used for ladder evaluation", minimum=0, maximum=0.5
    )

    @classmethod
    def check_games(
        cls,
        settings: Any,
        algorithm: str,
        env_config: Mapping[str, Any],
        policy_sharing: str = SHARED_POLICY,
    ) -> None:
        """Check that the algorithm supports the options of the games.

        Args:
            settings: Object with the settings, such as RLlib's configuration, or None before the
                settings are known.
            algorithm: Name of the algorithm, for error messages.
            env_config: Options of the games (`training_env_config.TrainingEnvConfig`).
            policy_sharing: `SHARED_POLICY` or `POLICY_PER_SEAT`.

        Raises:
            HyperparameterError: If the algorithm does not support an option.
        """
        if settings is not None:
            cls._check_own_games(settings, env_config)
        for key in ("curriculum", "opponents"):
            if env_config.get(key) and not cls.supports_game_mixes:
                raise HyperparameterError(
                    f"{key} needs {_GAME_MIX_ALGORITHMS}, got {algorithm}; leave it out"
                )
        counts = env_config.get("num_snakes")
        whole = isinstance(counts, list) and all(type(count) is int for count in counts)
        if isinstance(counts, list) and not (counts and whole and cls.supports_game_mixes):
            raise HyperparameterError(
                f"num_snakes must be a number, or with {_GAME_MIX_ALGORITHMS} a list of numbers, "
                f"got {counts} with {algorithm}"
            )
        if env_config.get("opponents") and counts in (1, [1]):
            raise HyperparameterError(
                f"opponents needs at least two snakes, got num_snakes {counts}; leave it out"
            )
        if policy_sharing not in (SHARED_POLICY, POLICY_PER_SEAT):
            raise HyperparameterError(
                f"policy_sharing must be {SHARED_POLICY!r} or {POLICY_PER_SEAT!r}, "
                f"got {policy_sharing!r}"
            )
        if policy_sharing == POLICY_PER_SEAT and not cls.uses_rllib_runners:
            raise HyperparameterError(f"policy_sharing per_seat needs RLLIB_PPO, got {algorithm}")

    @classmethod
    def _check_own_games(cls, settings: Any, env_config: Mapping[str, Any]) -> None:
        """Check what only this algorithm requires of the games; see `check_games`."""

    @staticmethod
    def install_packages() -> None:
        """Install the packages that only this algorithm needs, or explain how to."""

    @classmethod
    def default_num_env_runners(cls, cpus: int) -> int:
        """Return the default number of env runners on ``cpus`` CPUs.

        If the driver does not sample, one CPU is reserved for the driver.
        """
        return 0 if cls.samples_in_driver else max(cpus - 1, 1)

    @staticmethod
    def saturating_env_runners(settings: Any) -> float:
        """Return the number of env runners that saturate one learner on a CPU.

        The page docs/research/scaling.md has the measurements. The number is infinite if the env
        runners wait for the learner.

        Args:
            settings: Object with the settings, such as RLlib's configuration.
        """
        return math.inf
