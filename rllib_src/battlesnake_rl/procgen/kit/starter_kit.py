"""Experiment files of the competition's starter kit, as they are: what their settings mean today.

The kit is of 2020, as is its RLlib: many settings have other names now, and some mean nothing any
more. `translated` does what can be done without a choice of the user's, and lists each change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battlesnake_rl.launcher.launch.hyperparameters import RENAMED

GONE = {
    **dict.fromkeys(("use_pytorch", "eager", "framework"), "everything is PyTorch now"),
    **dict.fromkeys(
        ("vf_share_layers", "preprocessor_pref", "observation_filter", "synchronize_filters"),
        "the model decides what it does with pictures and which layers it shares",
    ),
    **dict.fromkeys(
        ("horizon", "soft_horizon", "no_done_at_end"), "the games end as they should by themselves"
    ),
    **dict.fromkeys(
        ("exploration_config", "log_sys_usage", "normalize_actions", "clip_actions"),
        "it has no effect on these games",
    ),
}
"""Settings of the starter kit that mean nothing any more, and why."""

CHECKPOINTS = ("checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num")

ALGORITHMS = {"RandomPolicy": "random_agent", "custom/CustomRandomAgent": "random_agent"}
MODELS = {"impala_cnn_tf": "impala_cnn", "impala_cnn_torch": "impala_cnn"}
"""Names of the kit's own files, and what does the same here."""

MODEL_KEYS = ("custom_model", "custom_options")
"""The keys under ``model``."""
PREPROCESSOR = "custom_preprocessor"
NO_PREPROCESSORS = (
    f"{PREPROCESSOR}: preprocessors of RLlib's old API do not run any more; do what yours does at "
    "the start of your network's _forward"
)

OLD = {*RENAMED, *GONE} - {"horizon", "framework"}
"""A file that has one of these under ``config`` is of the kit's time."""


def translated(body: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """An experiment as it is written today, and a line for each change; others are as they were."""
    config = body.get("config", {})
    old = isinstance(config, dict) and bool(OLD & set(config))
    old = old or body.get("run") in ALGORITHMS or bool(set(CHECKPOINTS) & set(body))
    if not old or not isinstance(config, dict):
        return dict(body), []
    changes: list[str] = []
    new = {key: value for key, value in body.items() if key not in CHECKPOINTS}
    if len(new) < len(body):
        changes.append("checkpoint_freq and the like: left out; checkpoints are by time")
    if (run := body.get("run")) in ALGORITHMS:
        new["run"] = ALGORITHMS[run]
        changes.append(f"run: {run} is {new['run']}")
    new["config"] = _config(config, changes)
    if run == "PPO" and math.isfinite(float(config.get("vf_clip_param", math.inf))):
        # What limits the value's move there cuts its loss in the PPO of today.
        new["run"] = "ProcgenPPO"
        new["config"] |= {"games": None, "reward_normalization": False}
        changes.append("run: PPO is ProcgenPPO, which clips values as PPO did then")
    return new, changes


def _config(config: Mapping[str, Any], changes: list[str]) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for key, value in config.items():
        if key in GONE:
            changes.append(f"config.{key}: left out; {GONE[key]}")
        elif key == "rollout_fragment_length":
            changes.append(f"config.{key}: {value} is auto; a batch is as long as it says")
        elif key == "explore" and str(value).strip(", ").lower() == "true":
            continue  # the kit's files say "True,", and training explores anyway
        elif key == "kl_coeff" and value == 0:
            new["use_kl_loss"] = False
            changes.append("config.kl_coeff: 0 is use_kl_loss: false")
        elif key == "clip_rewards" and value is None:
            continue
        elif key == "model" and isinstance(value, dict):
            new[key] = _model(value, changes)
        else:
            new[RENAMED.get(key, key)] = value
            if key in RENAMED:
                changes.append(f"config.{key}: is {RENAMED[key]}")
    return new


def _model(model: Mapping[str, Any], changes: list[str]) -> dict[str, Any]:
    """The kit's networks by their names here; of RLlib's own options the filters go to ours."""
    new = {key: model[key] for key in MODEL_KEYS if model.get(key) is not None}
    own = Path("models", f"{new.get('custom_model')}.py").is_file()
    if new.get("custom_model") in MODELS and not (own and "torch" in new["custom_model"]):
        changes.append(f"config.model.custom_model: {new['custom_model']} is impala_cnn")
        new["custom_model"] = MODELS[new["custom_model"]]
    if "conv_filters" in model and new.get("custom_model") == "my_vision_network":
        options = new.get("custom_options") or {}
        new["custom_options"] = {"conv_filters": model["conv_filters"]} | options
    if model.get(PREPROCESSOR) is not None:
        new[PREPROCESSOR] = model[PREPROCESSOR]  # refused with the experiment's other faults
    unused = sorted(set(model) - {*MODEL_KEYS, PREPROCESSOR, "conv_filters"})
    if unused:
        changes.append(
            f"config.model: left out {', '.join(unused)}; the network has its own options"
        )
    return new
