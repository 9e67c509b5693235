"""Translation of the settings of the competition's starter kit, which used RLlib of 2020.

Experiment files and hyperparameters are translated alike; a log line states each change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagemaker_rl.job.hyperparameters import CONFIG_PREFIX
from sagemaker_rl.job.legacy_names import COMMON_RENAMED, LegacyNames

_MODEL_PREFIX = CONFIG_PREFIX + "model."

_RENAMED_VALUES = {
    ("algorithm", "RandomPolicy"): "random_agent",
    ("algorithm", "custom/CustomRandomAgent"): "random_agent",
    ("custom_model", "impala_cnn_tf"): "impala_cnn",
    ("custom_model", "impala_cnn_torch"): "impala_cnn",
    (CONFIG_PREFIX + "explore", "True,"): True,  # All of the kit's files contain this comma.
}
"""Current values, keyed by the setting's current name and its former value."""

_CHECKPOINTS = "checkpoints are written every checkpoint_minutes"
_ONLY_TORCH = "every network is PyTorch"
_NO_LSTM = "no network has an LSTM"
_GAME_LIMIT = "an episode ends when the game ends it"
_NO_PREPROCESSOR = "preprocess at the start of your network's forward method"
_NO_FILTER = "observations are the game's images"

_WITHOUT_EFFECT: dict[str, tuple[tuple[Any, ...], str]] = {
    "rl.training.checkpoint_freq": ((), _CHECKPOINTS),
    "rl.training.checkpoint_at_end": ((), _CHECKPOINTS),
    "rl.training.keep_checkpoints_num": ((), _CHECKPOINTS),
    "rl.training.upload_dir": ((), "a job writes its checkpoints to checkpoint_s3_uri"),
    **{
        CONFIG_PREFIX + name: (values, reason)
        for name, values, reason in (
            ("use_pytorch", (), _ONLY_TORCH),
            ("framework", (), _ONLY_TORCH),
            ("eager", (False,), _ONLY_TORCH),
            ("horizon", (None,), _GAME_LIMIT),
            ("soft_horizon", (False,), _GAME_LIMIT),
            ("no_done_at_end", (False,), _GAME_LIMIT),
            ("preprocessor_pref", (), _NO_FILTER),
            ("observation_filter", ("NoFilter",), _NO_FILTER),
            ("synchronize_filters", (), _NO_FILTER),
            ("exploration_config", (None, {"type": "StochasticSampling"}), "actions are sampled"),
            ("vf_share_layers", (), "the network decides which layers the value shares"),
            ("monitor", (False,), "`procgen rollout --video-dir` records videos"),
            ("log_sys_usage", (), "progress.csv has cpu_percent"),
            ("model.use_lstm", (False,), _NO_LSTM),
            ("model.max_seq_len", (), _NO_LSTM),
            ("model.lstm_cell_size", (), _NO_LSTM),
            ("model.lstm_use_prev_action_reward", (False,), _NO_LSTM),
            ("model.state_shape", (None,), _NO_LSTM),
            ("model.no_final_linear", (False,), "the last layer returns the logits"),
            ("model.custom_preprocessor", ("MyPreprocessor",), _NO_PREPROCESSOR),
        )
    },
}

_NAMES = LegacyNames(
    renamed=COMMON_RENAMED
    | {
        "rl.training.env": "env",
        "rl.training.stop.time_total_s": "minutes",
        CONFIG_PREFIX + "env_config.env_name": "env_name",
        CONFIG_PREFIX + "callbacks": "callbacks",
        CONFIG_PREFIX + "evaluation_num_episodes": CONFIG_PREFIX + "evaluation_duration",
        CONFIG_PREFIX + "evaluation_num_workers": CONFIG_PREFIX + "evaluation_num_env_runners",
        CONFIG_PREFIX + "metrics_smoothing_episodes": (
            CONFIG_PREFIX + "metrics_num_episodes_for_smoothing"
        ),
        CONFIG_PREFIX + "min_iter_time_s": CONFIG_PREFIX + "min_time_s_per_iteration",
        _MODEL_PREFIX + "custom_model": "custom_model",
        _MODEL_PREFIX + "custom_options": "custom_options",
    },
    without_effect=_WITHOUT_EFFECT,
    convert=lambda name, value: value / 60 if name.endswith("stop.time_total_s") else value,
)

_MACHINE_SETTINGS = (
    *("num_workers", "num_cpus_per_worker", "num_gpus_per_worker", "num_cpus_for_driver"),
    "num_gpus",
)
"""Settings in experiment files that describe the machines of the competition."""


def translate_hyperparameters(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Translate the kit's hyperparameters to current ones.

    >>> translate_hyperparameters({"rl.training.config.num_sgd_iter": 3})[0]
    {'rl.training.config.num_epochs': 3}

    The argument, the results and the errors are those of `LegacyNames.translate`.
    """
    values, messages = _NAMES.translate(given)
    for name in [name for name in values if name.startswith(_MODEL_PREFIX)]:
        option = name.removeprefix(_MODEL_PREFIX)
        messages.append(f"{name} is now called custom_options.{option}: {values[name]}")
        values["custom_options"] = {**values.get("custom_options", {}), option: values.pop(name)}
    for name, value in values.items():
        if value == "impala_cnn_torch" and Path("models", f"{value}.py").exists():
            continue  # The user may have changed the kit's network.
        if isinstance(value, str) and (name, value) in _RENAMED_VALUES:
            values[name] = _RENAMED_VALUES[name, value]
            messages.append(f"{name} {value} is now called {values[name]}")
    return values, messages


def translate_file(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Translate the settings of an experiment file, keyed by their hyperparameters' names.

    A file with a former name is a file of the kit. Its resources suited the competition's machines
    and are left out, and its PPO is RLlib's of 2020.

    Returns:
        Hyperparameters by current name, and a message for each change.
    """
    machine = {CONFIG_PREFIX + name for name in _MACHINE_SETTINGS} & settings.keys()
    values, messages = translate_hyperparameters(
        {name: value for name, value in settings.items() if name not in machine}
    )
    messages += [
        f"{name} {settings[name]} is left out: this machine's CPUs and GPUs decide"
        for name in sorted(machine)
    ]
    if messages and values.get("algorithm") == "PPO":
        values[CONFIG_PREFIX + "vf_clip_param"] = math.inf
        messages.append(
            "vf_clip_param is .inf: RLlib's PPO would clip the value loss, not the values' change; "
            "ProcgenPPO clips like the kit's PPO and normalizes rewards"
        )
        if CONFIG_PREFIX + "rollout_fragment_length" in values:
            values[CONFIG_PREFIX + "rollout_fragment_length"] = "auto"
            messages.append("rollout_fragment_length is auto: an iteration plays exactly one batch")
        if values.get(CONFIG_PREFIX + "kl_coeff") == 0:
            values[CONFIG_PREFIX + "use_kl_loss"] = False
            messages.append("use_kl_loss is false, because kl_coeff is 0")
    return values, messages
