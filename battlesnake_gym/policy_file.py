"""The two files of a trained policy: ``policy.onnx`` and, beside it, ``policy.json``.

The JSON file describes how to query the network and, by its SHA-256, which network it describes.
All loading of policies reads the pair here, so that neither file is used damaged or mismatched.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.json_fields import format_value, parse
from battlesnake_gym.common.files import read_bounded, write_atomically
from battlesnake_gym.rules import MOVES

_FORMAT = 2
"""Version of the JSON file's format. Format 1 had other names of observations and options."""

_OBSERVATION_NAMES = {"reach": "territory", "centred": "centered"}
_OPTION_NAMES = {
    "frames": "frame_stack",
    "food": "food_rng",
    "starts": "start_positions",
    "food_at": "food_positions",
}
_MASK_NAMES = {"forbidden": "fatal"}
_FOOD_RNG_NAMES = {"seeded": "official"}

_MAX_MODEL_BYTES = 256 << 20
"""Bytes of a network; those that are trained here have two million."""


class PolicyError(ValueError):
    """A policy's files are missing, damaged or of another kind; says which, and what to do."""


def read(path: str | Path) -> tuple[bytes, dict[str, Any]]:
    """The network in ``path`` (the ONNX file) and what the JSON file of the same name says of it.

    Raises `PolicyError` where one is missing or damaged, or the two do not belong together.
    """
    onnx_path = Path(path)
    json_path = onnx_path.with_suffix(".json")
    text = _read_bytes(json_path)
    return check(_read_bytes(onnx_path), text, onnx_path)


def check(model: bytes, text: bytes, onnx_path: Path) -> tuple[bytes, dict[str, Any]]:
    """As `read`, of what was read from ``onnx_path`` and from the JSON file beside it."""
    json_path = onnx_path.with_suffix(".json")
    metadata = _read_metadata(text, json_path)
    digest = hashlib.sha256(model).hexdigest()
    if metadata.get("sha256") != digest:
        raise PolicyError(
            f"{json_path}: sha256 is {format_value(metadata.get('sha256'))}, but {onnx_path.name} has "
            f"{digest!r}; export the policy again, or put the two files of one export together"
        )
    return model, metadata


def open_session(model: bytes, name: object) -> Any:
    """An onnxruntime session over ``model``; raises `PolicyError`, which calls it ``name``.

    It has one thread: games run side by side, and threads within one tiny network only fight over
    the cores. onnxruntime comes with the extra ``server``.
    """
    # Else importing it starts a thread that reports to its maker.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise PolicyError(f"{name}: not a network that onnxruntime reads: {error}") from error


def write_metadata(path: Path, metadata: Mapping[str, Any]) -> None:
    """Write the JSON file beside the ONNX file ``path``, which is there already."""
    facts = {
        "format": _FORMAT,
        **metadata,
        "actions": list(MOVES),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    text = json.dumps(facts, indent=2) + "\n"
    write_atomically(path.with_suffix(".json"), lambda part: part.write_text(text))


def _read_bytes(path: Path) -> bytes:
    try:
        return read_bounded(path, _MAX_MODEL_BYTES)
    except ValueError as error:
        raise PolicyError(f"{error}; give the path of a policy.onnx") from error
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}; give the path of a policy.onnx") from error


def _read_metadata(text: bytes, path: Path) -> dict[str, Any]:
    try:
        metadata = parse(text)
    except ValueError as error:
        raise PolicyError(f"{path}: not JSON ({error}); export the policy again") from error
    if not isinstance(metadata, dict):
        raise PolicyError(f"{path}: must hold a JSON object; export the policy again")
    version = metadata.get("format")
    if type(version) is not int or version not in (1, _FORMAT):
        raise PolicyError(
            f"{path}: format is {format_value(version)}, this version reads 1 and {_FORMAT}; "
            "export the policy again"
        )
    if metadata.get("actions") != list(MOVES):
        raise PolicyError(
            f"{path}: actions must be {list(MOVES)}, got {format_value(metadata.get('actions'))}; "
            "export the policy again"
        )
    return _convert_format_1(metadata) if version == 1 else metadata


def _convert_format_1(metadata: dict[str, Any]) -> dict[str, Any]:
    """Convert the metadata of format 1 to the current names."""
    converted = metadata | {"format": _FORMAT}
    if "observation" in converted:
        converted["observation"] = convert_observation(converted["observation"])
    training = converted.get("training")
    if isinstance(training, dict) and isinstance(training.get("env_config"), dict):
        env_config = convert_env_config(training["env_config"])
        converted["training"] = training | {"env_config": env_config}
    return converted


def convert_observation(observation: Any) -> Any:
    """Convert an observation stored by version 0.1 to the current names.

    Args:
        observation: The name or dictionary that was stored; any other value stays as it is.

    Returns:
        A name or dictionary for `observations.get`.
    """
    if isinstance(observation, str):
        return _OBSERVATION_NAMES.get(observation, observation)
    if not isinstance(observation, Mapping):
        return observation
    converted = _rename_keys(observation)
    old_name = converted.get("name")
    if isinstance(old_name, str) and old_name in _OBSERVATION_NAMES:
        converted["name"] = _OBSERVATION_NAMES[old_name]
        if isinstance(planes := converted.get("planes"), list):
            converted["planes"] = [
                plane.replace("_reach", "_territory") if isinstance(plane, str) else plane
                for plane in planes
            ]
    return converted


def convert_env_config(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the environment options stored by version 0.1 to the current names and values.

    Args:
        env_config: The stored options. Options with current names stay as they are.

    Returns:
        A new dictionary.
    """
    converted = _rename_keys(env_config)
    if "observation" in converted:
        converted["observation"] = convert_observation(converted["observation"])
    if isinstance(kind := converted.get("action_mask"), str):
        converted["action_mask"] = "+".join(_MASK_NAMES.get(name, name) for name in kind.split("+"))
    if isinstance(food_rng := converted.get("food_rng"), str):
        converted["food_rng"] = _FOOD_RNG_NAMES.get(food_rng, food_rng)
    return converted


def _rename_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    return {_OPTION_NAMES.get(name, name): value for name, value in options.items()}
