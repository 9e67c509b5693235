"""RLlib configurations that take their settings from a dataclass of `mabs.settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, asdict, fields, replace
from typing import Any, ClassVar

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune.search.sample import Domain

from battlesnake_gym.rules import known_maps
from battlesnake_rl.mabs.envs.training_env_config import ENV_NAME, TrainingEnvConfig, env_options
from battlesnake_rl.mabs.settings.base_settings import AlgorithmSettings
from sagemaker_rl.job.hyperparameters import target_of

_CHOICES: dict[str, tuple[Any, ...]] = {
    "explore": (True, False),
    "placement_strategy": ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"),
    "log_level": ("DEBUG", "INFO", "WARN", "ERROR"),
    "grad_clip_by": ("value", "norm", "global_norm"),
    "batch_mode": ("truncate_episodes", "complete_episodes"),
    "count_steps_by": ("env_steps", "agent_steps"),
}
"""Valid values of RLlib's settings that RLlib does not check."""

_MINIMUMS = {
    "num_cpus_for_main_process": 0,
    "num_cpus_per_env_runner": 0,
    "num_gpus_per_learner": 0,
    "local_gpu_idx": 0,
    "max_num_env_runner_restarts": 0,
    "delay_between_env_runner_restarts_s": 0,
    "env_runner_health_probe_timeout_s": 0,
    "env_runner_restore_timeout_s": 0,
    "num_learners": 0,
    "sample_timeout_s": 0,
    "max_requests_in_flight_per_env_runner": 1,
    "metrics_num_episodes_for_smoothing": 1,
    "min_time_s_per_iteration": 0,
    "min_train_timesteps_per_iteration": 0,
    "min_sample_timesteps_per_iteration": 0,
    "evaluation_num_env_runners": 0,
    "evaluation_interval": 0,
}
"""Minimums of RLlib's settings that RLlib does not check."""


class SettingsConfig(AlgorithmConfig):  # type: ignore[misc]
    """RLlib configuration with the fields of an `AlgorithmSettings` class.

    The constructor of a subclass calls `apply` with the default settings. In the list of base
    classes, this class must precede RLlib's configuration class.
    """

    settings_class: ClassVar[type[AlgorithmSettings]]

    def apply(self, settings: Any) -> None:
        """Copy the settings of this algorithm to the fields of this configuration."""
        for field in fields(self.settings_class):
            self._store(field, getattr(settings, field.name))

    def _store(self, field: Field[Any], value: object) -> None:
        """Copy the value of one setting to the field of this configuration."""
        name, _, key = target_of(field).partition(".")
        setattr(self, name, {**getattr(self, name), key: value} if key else value)

    def training(self, **given: Any) -> Any:
        """Set this algorithm's own settings, and pass all other settings to RLlib."""
        names = self.settings_class.field_names()
        self._change({name: given.pop(name) for name in list(given) if name in names})
        return super().training(**given)

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid, or if the games are not supported."""
        self._change({})
        self._check_values()
        self.settings_class.check_games(self, self.algo_class.__name__, self.env_config)
        if self.env == ENV_NAME:
            games = env_options(self.env_config)
            games.check_settings(self.env_config.get("settings") or (), "settings: ")
            if self.ladder_cpu_fraction:
                _check_duels(games, self.ladder_cpu_fraction)
        super().validate()
        if self.evaluation_interval and not self.in_evaluation:
            try:
                self.get_evaluation_config_object().validate()
            except ValueError as error:
                raise ValueError(f"evaluation_config: {error}") from error

    def _check_values(self) -> None:
        """Check the values of RLlib's settings that RLlib itself does not check.

        Raises:
            ValueError: If a value is invalid, or if it has no effect with one learner.
        """
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                known = ", ".join(map(str, choices))
                raise ValueError(f"{name} must be one of {known}, got {value!r}")
        for name, minimum in _MINIMUMS.items():
            value = getattr(self, name)
            if value is not None and not (type(value) in (int, float) and value >= minimum):
                raise ValueError(f"{name} must be a number of at least {minimum}, got {value!r}")
        if self.torch_ddp_kwargs and self.num_learners < 2:
            raise ValueError(
                "torch_ddp_kwargs has no effect with fewer than 2 num_learners; omit it"
            )

    def _change(self, given: Mapping[str, Any]) -> None:
        """Change settings, and check all settings, which RLlib's methods may have changed.

        Search spaces of Ray Tune are stored unchecked. Tune replaces each one with a value, which
        is checked.

        Raises:
            ValueError: If a value is invalid.
        """
        current = {}
        for field in fields(self.settings_class):
            name, _, key = target_of(field).partition(".")
            value, default = getattr(self, name), field.metadata["default"]
            current[field.name] = value.get(key, default) if key else value
        names = self.settings_class.field_names()
        changed = current | {names[name]: value for name, value in given.items()}
        spaces = {name: value for name, value in changed.items() if _is_search_space(value)}
        checked, _ = self.settings_class.fill(
            {name: value for name, value in given.items() if names[name] not in spaces},
            {name: value for name, value in current.items() if name not in spaces},
        )
        self.apply(checked)
        for field in fields(self.settings_class):
            if field.name in spaces:
                self._store(field, spaces[field.name])


def _check_duels(games: TrainingEnvConfig, ladder_cpu_fraction: float) -> None:
    """Raise ValueError if the map does not allow duels; the games reject an unknown map."""
    board_map = known_maps().get(games.map)
    if board_map is None:
        return
    width, height, most = (int(np.max(n)) for n in (games.width, games.height, games.num_snakes))
    board_map.check(width, height, most)
    try:
        board_map.check(width, height, 2)
    except ValueError as error:
        raise ValueError(
            f"ladder_cpu_fraction is {ladder_cpu_fraction}, but the ladder plays duels, which the "
            f"map {games.map!r} does not allow; set ladder_cpu_fraction to 0, or change the map"
        ) from error


def _is_search_space(value: object) -> bool:
    """Return whether a value is a search space of Ray Tune, such as ``tune.uniform(0, 1)``."""
    return isinstance(value, Domain) or (
        isinstance(value, Mapping) and value.keys() == {"grid_search"}
    )


class StandaloneConfig(AlgorithmConfig):  # type: ignore[misc]
    """Configuration of an algorithm that uses neither RLlib's env runners nor its learners.

    Only `settings`, the options of the games and ``seed`` have an effect.

    Args:
        algo_class: Class with the methods that the launcher calls on an algorithm. The argument of
            its constructor is the configuration.
    """

    settings_class: ClassVar[type[AlgorithmSettings]]

    def __init__(self, algo_class: type) -> None:
        super().__init__(algo_class=algo_class)
        self.settings: Any = self.settings_class()

    def environment(self, env: str, *, env_config: Mapping[str, Any]) -> Any:
        """Set the options of the games.

        Raises:
            ValueError: If the algorithm does not support an option.
        """
        self.settings_class.check_games(self.settings, self.algo_class.__name__, env_config)
        return super().environment(env, env_config=env_config)

    def apply(self, settings: Any) -> None:
        """Replace all settings."""
        names = [field.name for field in fields(self.settings_class)]
        self.settings = self.settings_class(**{name: getattr(settings, name) for name in names})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, keyed by name, and the options of the games."""
        return asdict(self.settings) | {"env_config": self.env_config}

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Any:
        """Replace the settings whose names ``config_dict`` contains."""
        changed = dict(config_dict)
        self.environment(ENV_NAME, env_config=changed.pop("env_config", self.env_config))
        self.apply(replace(self.settings, **changed))
        return self

    def build_algo(self) -> Any:
        """Create the algorithm."""
        return self.algo_class(self)
