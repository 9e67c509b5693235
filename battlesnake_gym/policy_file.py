"""The two files of a trained policy: ``policy.onnx`` and ``policy.json`` in the same directory.

The JSON file describes the network's inputs and identifies the network by its SHA-256. All
loading of policies reads the pair in this module, which rejects damaged and mismatched files.
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
from battlesnake_gym.common.old_env_config import convert_env_config, convert_observation
from battlesnake_gym.rules import MOVES

_FORMAT = 2
"""Current version of the JSON file's format; format 1 has the names of version 0.1."""

_MAX_MODEL_BYTES = 256 << 20
"""Largest accepted network file in bytes; networks trained here have about two million."""


class PolicyError(ValueError):
    """Missing, damaged or unsuitable policy files; the message names the file and the remedy."""


def read(path: str | Path) -> tuple[bytes, dict[str, Any]]:
    """Read a network and its JSON file.

    Args:
        path: The ONNX file; the JSON file has the same name and the suffix ``.json``.

    Returns:
        The bytes of the network and the metadata from the JSON file.

    Raises:
        PolicyError: If a file is missing or damaged, or the hash in the JSON file is another.
    """
    onnx_path = Path(path)
    json_path = onnx_path.with_suffix(".json")
    text = _read_bytes(json_path)
    return check(_read_bytes(onnx_path), text, onnx_path)


def check(model: bytes, text: bytes, onnx_path: Path) -> tuple[bytes, dict[str, Any]]:
    """Check a network and its JSON file that were read already.

    Args:
        model: The bytes of the network.
        text: The bytes of the JSON file.
        onnx_path: The path of the network, for error messages.

    Returns:
        ``model`` and the metadata from ``text``.

    Raises:
        PolicyError: If ``text`` is damaged or describes another network.
    """
    json_path = onnx_path.with_suffix(".json")
    metadata = _read_metadata(text, json_path)
    digest = hashlib.sha256(model).hexdigest()
    if metadata.get("sha256") != digest:
        raise PolicyError(
            f"{json_path}: sha256 is {format_value(metadata.get('sha256'))}, but {onnx_path.name} "
            f"has {digest!r}; export the policy again, or put the two files of one export together"
        )
    return model, metadata


def open_session(model: bytes, name: object) -> Any:
    """Open an onnxruntime session with one thread; onnxruntime comes with the extra ``server``.

    One thread suffices: games run in parallel, and the threads of one tiny network would only
    compete for the cores.

    Args:
        model: The bytes of the network.
        name: The name of the network in error messages.

    Raises:
        PolicyError: If onnxruntime cannot read ``model``.
    """
    # Without this variable, the import of onnxruntime starts a telemetry thread.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base class.
        raise PolicyError(f"{name}: not a network that onnxruntime can read: {error}") from error


def write_metadata(path: Path, metadata: Mapping[str, Any]) -> None:
    """Write the JSON file of an existing ONNX file.

    Args:
        path: The ONNX file.
        metadata: The content, to which the format, the actions and the hash are added.
    """
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
        raise PolicyError(f"{path}: must contain a JSON object; export the policy again")
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
