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

_FORMAT = 1
"""The version of the JSON file's form."""

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
    if metadata.get("format") != _FORMAT:
        raise PolicyError(
            f"{path}: format is {format_value(metadata.get('format'))}, this version reads {_FORMAT}; "
            "export the policy again"
        )
    if metadata.get("actions") != list(MOVES):
        raise PolicyError(
            f"{path}: actions must be {list(MOVES)}, got {format_value(metadata.get('actions'))}; "
            "export the policy again"
        )
    return metadata
