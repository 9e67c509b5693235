"""Files of a trained policy: ``policy.onnx`` and ``policy.json``.

The JSON file describes the network's inputs and identifies the network by its SHA-256. Every loader
of policies reads both files through this module, which rejects damaged and mismatched files.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.json_fields import format_value, parse_small_json
from battlesnake_gym.common.files import read_bounded, sync, write_atomically
from battlesnake_gym.common.old_env_config import convert_env_config, convert_observation
from battlesnake_gym.common.watchdog import Watchdog
from battlesnake_gym.rules import MOVES

INPUT, OUTPUT = "observations", "q_values"
"""Names of a network's input and output: uint8 [B, C, H, W], float32 [B, 4]."""

STATE_INPUT, STATE_OUTPUT = "state_in", "state_out"
"""Names of a recurrent network's states before and after the move: float32 [B, state_size]."""

_FORMAT_VERSION = 2
"""Current version of the JSON format.

Format 1 has the names of version 0.1.
"""

_MAX_MODEL_BYTES = 256 << 20
"""Maximum size of a network file in bytes.

Networks trained by this project have about two million bytes.
"""


LOAD_TIMEOUT_S = 30.0
"""Timeout for loading a network, in seconds.

Networks trained by this project load in less than one second.
"""

_DEFAULT_CALL_TIMEOUT_S = 60.0
"""Timeout of a call of a network without a time budget, in seconds."""

_MIN_CALL_TIMEOUT_S = 1.0
"""Minimum timeout of a call in seconds.

On a busy machine, any network may exceed its time budget.
"""

_FATAL_LOG_SEVERITY = 4
"""Minimum severity of onnxruntime's log messages.

Exceptions report all errors, so the log is disabled.
"""

_ONNX_CHILDREN = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""Types of ONNX child messages that lead to tensors.

The keys are the message type and the field number.
"""

_EXTERNAL_DATA_FIELDS = (13, 14)
"""ONNX field numbers of a tensor's external_data and data_location.

A tensor with one of these fields has its values in another file.
"""

_ORT_SIGNATURE = slice(4, 8), b"ORTM"
"""Position and value of the signature of onnxruntime's own file format."""

_watchdog = Watchdog()


class PolicyError(ValueError):
    """Error for policy files.

    The message contains the path of the file and a remedy.
    """


class PolicyTimeoutError(PolicyError, TimeoutError):
    """Error for a network that exceeded a timeout."""


def read(path: str | Path) -> tuple[bytes, dict[str, Any]]:
    """Read a network and its JSON file.

    If `save` was interrupted between the two files, this function replaces the second file.

    Args:
        path: The ONNX file; the JSON file has the same name and the suffix ``.json``.

    Returns:
        The bytes of the network and the metadata from the JSON file.

    Raises:
        PolicyError: If a file is missing or damaged, or if the hash in the JSON file does not match
            the network.
    """
    onnx_path = Path(path)
    model = _read_bytes(onnx_path)
    _finish_save(onnx_path, hashlib.sha256(model).hexdigest())
    return check(model, _read_bytes(onnx_path.with_suffix(".json")), onnx_path)


def check(model: bytes, text: bytes, onnx_path: Path) -> tuple[bytes, dict[str, Any]]:
    """Check a network and its JSON file, whose bytes were already read.

    Args:
        model: The bytes of the network.
        text: The bytes of the JSON file.
        onnx_path: The path of the network, for error messages.

    Returns:
        ``model`` and the metadata from ``text``.

    Raises:
        PolicyError: If ``text`` is damaged or describes another network, or if the network has
            values in other files.
    """
    json_path = onnx_path.with_suffix(".json")
    metadata = _parse_metadata(text, json_path)
    digest = hashlib.sha256(model).hexdigest()
    if metadata.get("sha256") != digest:
        raise PolicyError(
            f"{json_path}: sha256 is not that of {onnx_path.name}; export the policy again"
        )
    _check_self_contained(model, onnx_path)
    return model, metadata


def open_session(model: bytes, name: object) -> Any:
    """Open an onnxruntime session with one thread.

    The extra ``server`` installs onnxruntime.

    One thread suffices: games run in parallel, and the threads of one tiny network would only
    compete for the cores.

    Args:
        model: The bytes of the network.
        name: The name of the network in error messages.

    Raises:
        PolicyError: If onnxruntime cannot read ``model`` within `LOAD_TIMEOUT_S` seconds.
    """
    # Without this variable, the import of onnxruntime starts a telemetry thread.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_LOG_SEVERITY
    opened: Future[Any] = Future()

    def create_session() -> None:
        try:
            opened.set_result(
                onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            )
        except Exception as error:
            # The exceptions of onnxruntime have no common base class.
            opened.set_exception(error)

    # A daemon thread loads the network, because the optimization of a malicious network may never
    # end. Onnxruntime seldom checks the cancellation flag.
    threading.Thread(target=create_session, name="load-network", daemon=True).start()
    try:
        return opened.result(LOAD_TIMEOUT_S)
    except TimeoutError as error:
        options.set_load_cancellation_flag(True)
        raise PolicyTimeoutError(
            f"{name}: did not load within {LOAD_TIMEOUT_S:g} s; use a smaller network"
        ) from error
    except Exception as error:
        raise PolicyError(f"{name}: not a network that onnxruntime can read: {error}") from error


def run_session(
    session: Any,
    outputs: list[str] | None,
    inputs: Mapping[str, Any],
    time_budget_s: float | None = None,
) -> list[Any]:
    """Run an onnxruntime session with a timeout, because a network may loop.

    Args:
        session: The session.
        outputs: The names of the outputs to compute; None means all outputs.
        inputs: The arrays by input name.
        time_budget_s: Time budget of the call, in seconds. Values below 1 count as 1, and None
            counts as 60.

    Returns:
        The arrays of the outputs.

    Raises:
        PolicyTimeoutError: If the network does not return in time.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = _FATAL_LOG_SEVERITY
    limit_s = (
        _DEFAULT_CALL_TIMEOUT_S
        if time_budget_s is None
        else max(time_budget_s, _MIN_CALL_TIMEOUT_S)
    )

    def terminate_run() -> None:
        options.terminate = True

    try:
        with _watchdog.limit(limit_s, terminate_run):
            arrays: list[Any] = session.run(outputs, dict(inputs), options)
    except Exception as error:
        # The exceptions of onnxruntime have no common base class.
        if options.terminate:
            raise PolicyTimeoutError(
                f"the network did not return within {limit_s:.3g} s; use a smaller network"
            ) from error
        raise
    return arrays


def state_size(session: Any) -> int:
    """Return the number of floats of a network's recurrent state; 0 if it is not recurrent."""
    sizes = [node.shape[-1] for node in session.get_inputs() if node.name == STATE_INPUT]
    return int(sizes[0]) if sizes else 0


def run_policy(
    session: Any, frames: Any, states: Any = None, time_budget_s: float | None = None
) -> tuple[Any, Any]:
    """Return the action scores and the next states of a policy's network.

    Args:
        session: The session.
        frames: Observations, uint8 [B, C, H, W].
        states: Recurrent states, float32 [B, state_size]; unused if the network is not recurrent.
        time_budget_s: See `run_session`.
    """
    if not state_size(session):
        return run_session(session, [OUTPUT], {INPUT: frames}, time_budget_s)[0], states
    inputs = {INPUT: frames, STATE_INPUT: states}
    scores, after = run_session(session, [OUTPUT, STATE_OUTPUT], inputs, time_budget_s)
    return scores, after


def save(path: Path, write_model: Callable[[Path], Mapping[str, Any]]) -> None:
    """Replace an ONNX file and its JSON file together.

    The new JSON file is on disk before the ONNX file is replaced. If the process is killed or loses
    power, `read` therefore finds the old pair or the new pair.

    Args:
        path: The ONNX file; the JSON file has the same name and the suffix ``.json``.
        write_model: Function that writes the network to the path that it receives. The function
            returns the content of the JSON file, to which the format, the actions and the hash are
            added.
    """
    next_json_path = path

    def write(temporary: Path) -> None:
        nonlocal next_json_path
        metadata = write_model(temporary)
        digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        content = {
            "format": _FORMAT_VERSION,
            **metadata,
            "actions": list(MOVES),
            "sha256": digest,
        }
        text = json.dumps(content, indent=2) + "\n"
        next_json_path = _next_json_path(path, digest)
        write_atomically(next_json_path, lambda part: part.write_text(text))

    if path.exists():
        _finish_save(path, hashlib.sha256(path.read_bytes()).hexdigest())
    for leftover in path.parent.glob(f".{glob.escape(path.stem)}.{'[0-9a-f]' * 64}.json"):
        leftover.unlink(missing_ok=True)
    write_atomically(path, write)
    # A concurrent `read` may have replaced the JSON file.
    with suppress(FileNotFoundError):
        next_json_path.replace(path.with_suffix(".json"))
    sync(path.parent)


def _finish_save(onnx_path: Path, digest: str) -> None:
    """Replace the JSON file if `save` was interrupted after it replaced the ONNX file."""
    # The file is missing unless a `save` was interrupted.
    with suppress(OSError):
        _next_json_path(onnx_path, digest).replace(onnx_path.with_suffix(".json"))


def _next_json_path(onnx_path: Path, digest: str) -> Path:
    """Return the path of the JSON file of a network during a save.

    The file has this name while `save` replaces the ONNX file.

    Args:
        onnx_path: The ONNX file.
        digest: SHA-256 of the network, in hexadecimal.
    """
    return onnx_path.with_name(f".{onnx_path.stem}.{digest}.json")


def _check_self_contained(model: bytes, onnx_path: Path) -> None:
    """Reject a network with external data.

    The hash of the network does not cover external data.
    """
    # The packages of onnxruntime and onnx, which read networks, install protobuf.
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    unread = [("model", model)]
    try:
        if model[_ORT_SIGNATURE[0]] == _ORT_SIGNATURE[1]:
            raise DecodeError("onnxruntime's own format")
        while unread:
            kind, data = unread.pop()
            for field in UnknownFieldSet(Empty.FromString(data)):  # type: ignore[attr-defined]
                if kind == "tensor" and field.field_number in _EXTERNAL_DATA_FIELDS and field.data:
                    raise PolicyError(
                        f"{onnx_path}: has values in other files (external data); save the network "
                        "as one file"
                    )
                if child := _ONNX_CHILDREN[kind].get(field.field_number):
                    unread.append((child, field.data))
    except (DecodeError, TypeError) as error:
        raise PolicyError(
            f"{onnx_path}: not a network that onnxruntime can read: {error}"
        ) from error


def _read_bytes(path: Path) -> bytes:
    try:
        return read_bounded(path, _MAX_MODEL_BYTES)
    except ValueError as error:
        raise PolicyError(f"{error}; give the path of a policy.onnx") from error
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}; give the path of a policy.onnx") from error


def _parse_metadata(text: bytes, path: Path) -> dict[str, Any]:
    try:
        metadata = parse_small_json(text)
    except ValueError as error:
        raise PolicyError(f"{path}: not JSON ({error}); export the policy again") from error
    if not isinstance(metadata, dict):
        raise PolicyError(f"{path}: must contain a JSON object; export the policy again")
    version = metadata.get("format")
    if type(version) is not int or version not in (1, _FORMAT_VERSION):
        raise PolicyError(
            f"{path}: format must be 1 or {_FORMAT_VERSION}, got {format_value(version)}; "
            "export the policy again"
        )
    if metadata.get("actions") != list(MOVES):
        raise PolicyError(
            f"{path}: actions must be {list(MOVES)}, got {format_value(metadata.get('actions'))}; "
            "export the policy again"
        )
    return _convert_format_1(metadata) if version == 1 else metadata


def _convert_format_1(metadata: dict[str, Any]) -> dict[str, Any]:
    """Convert the metadata from format 1 to format 2, which has the current names."""
    converted = metadata | {"format": _FORMAT_VERSION}
    if "observation" in converted:
        converted["observation"] = convert_observation(converted["observation"])
    training = converted.get("training")
    if isinstance(training, dict) and isinstance(training.get("env_config"), dict):
        env_config = convert_env_config(training["env_config"])
        converted["training"] = training | {"env_config": env_config}
    return converted
