"""RLlib settings that this project's algorithms support.

This project's env runners, replay buffers and learners (`batched_algorithm`) omit many of RLlib's
features. A changed setting without an effect is rejected; the error message names the setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from battlesnake_gym.common.suggestions import nearest_name, unknown_name_message
from battlesnake_rl.mabs.settings.algorithm_settings import ALGORITHMS
from battlesnake_rl.mabs.settings.base_settings import AlgorithmSettings
from sagemaker_rl.job.hyperparameters import (
    CONFIG_PREFIX,
    HyperparameterError,
    target_of,
    unknown_name_error,
)

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

_SUPPORTED_FIELD_NAMES = """
    algo_class callbacks_class callbacks_on_algorithm_init callbacks_on_checkpoint_loaded
    callbacks_on_env_runners_recreated callbacks_on_environment_created
    callbacks_on_episode_created callbacks_on_episode_end callbacks_on_episode_start
    callbacks_on_episode_step callbacks_on_evaluate_end callbacks_on_evaluate_start
    callbacks_on_sample_end callbacks_on_train_result
    env env_config env_runner_cls explore create_env_on_local_worker
    num_env_runners num_envs_per_env_runner rollout_fragment_length sample_timeout_s
    max_requests_in_flight_per_env_runner num_cpus_per_env_runner custom_resources_per_env_runner
    num_learners num_cpus_per_learner num_gpus_per_learner custom_resources_per_learner
    local_gpu_idx num_cpus_for_main_process custom_resources_for_main_process placement_strategy
    validate_env_runners_after_construction restart_failed_env_runners ignore_env_runner_failures
    max_num_env_runner_restarts delay_between_env_runner_restarts_s
    num_consecutive_env_runner_failures_tolerance env_runner_health_probe_timeout_s
    env_runner_restore_timeout_s
    gamma lr grad_clip grad_clip_by torch_skip_nan_gradients
    torch_ddp_kwargs learner_class rl_module_spec model_config
    evaluation_interval evaluation_duration evaluation_duration_unit evaluation_sample_timeout_s
    evaluation_auto_duration_min_env_steps_per_sample
    evaluation_auto_duration_max_env_steps_per_sample evaluation_parallel_to_training
    evaluation_unhealthy_workers_timeout_s evaluation_error_after_n_consecutive_skips
    evaluation_force_reset_envs_before_iteration evaluation_config evaluation_num_env_runners
    custom_evaluation_function
    metrics_num_episodes_for_smoothing min_time_s_per_iteration min_train_timesteps_per_iteration
    min_sample_timesteps_per_iteration stats_cls_lookup
    log_level log_sys_usage seed
"""

SUPPORTED_FIELDS = frozenset(_SUPPORTED_FIELD_NAMES.split())
"""Fields of RLlib's configuration that work as documented by RLlib."""

INTERNAL_FIELDS = frozenset(
    (
        *("class", "in_evaluation", "is_online", "_is_frozen", "_validate_config"),
        *("simple_optimizer", "learner_config_dict"),
    )
)
"""Fields that RLlib sets itself, and fields reserved for custom learners."""

_TUNE_FIELDS = frozenset(("__stdout_file__", "__stderr_file__", "__trial_info__"))
"""Fields that Ray Tune adds to the configuration of a trial."""

_FIXED_FIELD_VALUES = {"merge_env_runner_states": False}
"""Fields without an effect whose value differs from RLlib's default."""

_ALTERNATIVES = {
    "num_atoms": "distributional values are not supported",
    "noisy": "set epsilon or epsilon_per_game",
    "hiddens": "set model_config's hidden_size",
    "model": "set model_config",
    "train_batch_size": "set train_batch_size_per_learner, or PPO's minibatch_size",
    "train_batch_size_per_learner": "set minibatch_size, or rollout_fragment_length",
    "minibatch_size": "set train_batch_size_per_learner",
    "clip_rewards": "set reward_scale or other rewards",
    "num_gpus": "set num_gpus_per_learner",
    "num_gpus_per_env_runner": "env runners use only the CPU",
    "env_to_module_connector": "register an observation",
    "module_to_env_connector": "set env_config's action_mask",
    "learner_connector": "set learner_class",
    "policies": "all snakes share one policy; RLLIB_PPO supports several",
    "policy_mapping_fn": "all snakes share one policy; RLLIB_PPO supports several",
    "policies_to_train": "set env_config's opponents, or use RLLIB_PPO",
    "count_steps_by": "all step counts are env steps",
    "batch_mode": "every fragment has rollout_fragment_length turns",
    "observation_filter": "register an observation",
    "observation_space": "set env_config's observation",
    "action_space": "the actions are always the four moves",
    "lr_schedule": "set a schedule for lr: [[0, 1e-3], [100000, 1e-4]]",
    "framework_str": "all networks use torch",
    "off_policy_estimation_methods": "evaluation always plays games",
    "input_": "use DISTIL, or RLlib's MARWIL or CQL",
    "torch_compile_learner": "compilation does not speed up these networks",
}
"""Alternative to each unsupported field, keyed by public field name."""


def _public_name(config: AlgorithmConfig, field: str) -> str:
    """Return the public name of a configuration field.

    RLlib stores some fields with a leading underscore and exposes these fields as properties.

    >>> from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
    >>> _public_name(AlgorithmConfig(), "_train_batch_size_per_learner")
    'train_batch_size_per_learner'
    """
    name = field.removeprefix("_")
    if isinstance(getattr(type(config), name, None), property):
        return name
    return name if name.endswith("_connector") or name == "learner_class" else field


def _get_public_fields(config: AlgorithmConfig) -> dict[str, Any]:
    """Return all fields of a configuration, keyed by public name."""
    values = {_public_name(config, field): value for field, value in vars(config).items()}
    # RLlib replaces the values of ``policies``, so only the policy names are comparable.
    return values | {"policies": sorted(values["policies"])}


def _supported_fields(settings: AlgorithmSettings | type[AlgorithmSettings]) -> frozenset[str]:
    """Return the names of RLlib's fields that have an effect for an algorithm."""
    own = (target_of(field) for field in fields(settings) if field.metadata["target"] is not None)
    names = {*SUPPORTED_FIELDS, *settings.extra_fields.split()}
    if "gamma" not in settings.__dataclass_fields__:
        names.discard("gamma")
    return frozenset({*names, *(name.partition(".")[0] for name in own)})


def check_name(settings: AlgorithmSettings, algorithm: str, name: str, value: Any) -> None:
    """Reject the name of a setting of RLlib that is unknown or has no effect, without Ray.

    `check_settings` finds all other settings without an effect.

    Args:
        settings: Settings of the algorithm.
        algorithm: Name of the algorithm.
        name: Dotted name of a field of RLlib's configuration.
        value: Value of the field.

    Raises:
        HyperparameterError: If the field is unknown or has no effect.
    """
    first = name.partition(".")[0]
    known = _supported_fields(settings)
    # The new stack ignores `model`.
    if first in known or (settings.uses_rllib_runners and first != "model"):
        return
    if value and first in _ALTERNATIVES:
        raise HyperparameterError(
            f"{CONFIG_PREFIX}{name}: {algorithm} does not use {first}; {_ALTERNATIVES[first]}"
        )
    names = known.union(*map(_supported_fields, ALGORITHMS.values()))
    if nearest_name(first, names):
        raise unknown_name_error(CONFIG_PREFIX + first, (CONFIG_PREFIX + one for one in names))


def check_settings(config: AlgorithmConfig) -> None:
    """Check that every changed setting has an effect.

    Raises:
        ValueError: If a changed setting has no effect. The message contains each field, its default
            and an alternative.
    """
    if config.in_evaluation:
        return  # RLlib derived this evaluation configuration from a validated configuration.
    plain = _get_public_fields(config.rllib_config_class()) | _FIXED_FIELD_VALUES
    default = type(config)()
    ours = _get_public_fields(default).keys() - plain.keys()
    known = _supported_fields(config.settings_class) | ours
    passed_over = known | INTERNAL_FIELDS | _TUNE_FIELDS
    faults = []
    for name, value in _get_public_fields(config).items():
        if name in passed_over:
            continue
        if name not in plain:
            faults.append(unknown_name_message("setting", name, sorted(known)))
        elif not _is_equal(value, plain[name]):
            remedy = _ALTERNATIVES.get(name, "leave the setting out")
            faults.append(f"{name} is not used ({remedy}; the default is {plain[name]!r:.80})")
    faults += [
        f"evaluation_config's {name} is not used (leave the setting out)"
        for name in config.evaluation_config or {}
        if name not in known
    ]
    faults += _find_model_config_faults(config, default.model_config)
    if config.env_config.get("clip_rewards"):
        faults.append(f"env_config.clip_rewards is not used ({_ALTERNATIVES['clip_rewards']})")
    if faults:
        raise ValueError(f"{config.algo_class.__name__}: {'; '.join(faults)}")


def _find_model_config_faults(config: Any, defaults: Mapping[str, Any]) -> list[str]:
    """Return messages about unknown entries of ``model_config``, and entries without an effect.

    Args:
        config: Configuration of one of this project's algorithms.
        defaults: ``model_config`` of a new configuration.
    """
    faults, known = [], {*defaults, "network"}
    given = config._model_config  # RECURRENT_PPO's `model_config` replaces some given entries.
    entries = config.model_config | (given if isinstance(given, dict) else {})
    for name, value in entries.items():
        field, default = getattr(config, name, None), defaults.get(name)
        # A custom network only receives shapes. The games determine the head plane.
        if name in config.trunk and name != "head_plane":
            if config.model_config.get("network") and value != default:
                faults.append(f"model_config's {name} has no effect on a custom network (omit it)")
        elif field is not None and value not in (field, default):
            faults.append(f"model_config's {name} is not used (set {name} itself)")
        elif name not in known and config._rl_module_spec is None:
            faults.append(unknown_name_message("model_config setting", name, sorted(known)))
    return faults


def _is_equal(value: Any, default: Any) -> bool:
    """Return whether a field's value equals its default, including the type."""
    return value is default or (type(value) is type(default) and bool(value == default))
