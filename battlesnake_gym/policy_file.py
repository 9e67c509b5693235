"""Trained policies, stored as ``policy.onnx`` with metadata in ``policy.json``.

The network maps ``observations`` uint8 ``[B, C, H, W]`` to ``q_values`` float32 ``[B, 4]``. A
recurrent network also maps ``state_in`` to ``state_out``, float32 ``[B, state_size]``. The JSON
file contains the observation, the board sizes of the training, the order of the actions, and the
SHA-256 of the network. Every program reads, writes and runs policies through this module, which
rejects damaged and mismatched files.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.board_json import MAX_READABLE_BOARD_SIZE
from battlesnake_gym.boards.json_fields import format_value, parse_small_json
from battlesnake_gym.common.files import read_bounded, sync, write_atomically
from battlesnake_gym.common.old_runs import convert_env_config, convert_observation
from battlesnake_gym.common.watchdog import Watchdog
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.mdp import observations
from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.rules import MOVES, Game

INPUT, OUTPUT = "observations", "q_values"
"""Names of a network's input and output: uint8 [B, C, H, W], float32 [B, 4]."""

STATE_INPUT, STATE_OUTPUT = "state_in", "state_out"
"""Names of a recurrent network's states before and after the move: float32 [B, state_size]."""

_MAX_BOARD_SIZES = 100

_FLOATS = "tensor(float)"
"""Name of the type float32 in onnxruntime."""

_MAX_STATE_SIZE = 4096
"""Maximum number of floats of a recurrent state, so that the sessions of games stay small."""

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

_MAX_ONNX_DEPTH = 100
"""Maximum depth of nested messages in an ONNX file, the limit of protobuf."""

_EXTERNAL_DATA_FIELDS = (13, 14)
"""ONNX field numbers of a tensor's external_data and data_location.

A tensor with one of these fields has its values in another file.
"""

_ORT_SIGNATURE = slice(4, 8), b"ORTM"
"""Position and value of the signature of onnxruntime's own file format."""

_watchdog = Watchdog()  # A run that returns during Python's exit would abort the process.


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
        PolicyError: If a file is missing or damaged, if ``path`` does not end in ``.onnx``, or if
            the hash in the JSON file does not match the network.
    """
    onnx_path = Path(path)
    if onnx_path.suffix != ".onnx":
        raise PolicyError(f"{path} does not end in .onnx; give the path of a policy.onnx")
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
    with _reject_damaged(json_path):
        metadata = _parse_metadata(text)
        if metadata.get("sha256") != hashlib.sha256(model).hexdigest():
            raise ValueError(f"sha256 is not that of {onnx_path.name}")
    _check_self_contained(model, onnx_path)
    return model, metadata


@contextmanager
def _reject_damaged(path: Path) -> Iterator[None]:
    """Convert each ``ValueError`` to `PolicyError` with the path of the damaged file."""
    try:
        yield
    except PolicyError:
        raise
    except ValueError as error:
        raise PolicyError(f"{path}: {error}; export the policy again") from error


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
    limit_s = _DEFAULT_CALL_TIMEOUT_S
    if time_budget_s is not None:
        limit_s = max(time_budget_s, _MIN_CALL_TIMEOUT_S)

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


@dataclass(frozen=True)
class OnnxPolicy:
    """Loaded policy.

    The object contains no states. Any number of games and threads can share the object.

    Attributes:
        observation: Observation that encodes the input of the network.
        board_sizes: Pairs (width, height) that the policy supports.
        session: onnxruntime session of the network.
        metadata: Content of the JSON file.
        model: Content of the ONNX file.
    """

    observation: Observation
    board_sizes: frozenset[tuple[int, int]]
    session: Any
    metadata: Mapping[str, Any]
    model: bytes

    @classmethod
    def load(cls, path: str | Path) -> OnnxPolicy:
        """Load a policy.

        Args:
            path: Path of the ONNX file; the JSON file has the same name with the suffix ``.json``.

        Raises:
            PolicyError: If the files are inconsistent or do not match this version.
        """
        onnx_path = Path(path)
        return cls.from_contents(*read(onnx_path), onnx_path)

    @classmethod
    def from_contents(
        cls, model: bytes, metadata: Mapping[str, Any], onnx_path: Path
    ) -> OnnxPolicy:
        """Build a policy from the contents of its files.

        Args:
            model: Content of the ONNX file.
            metadata: Content of the JSON file.
            onnx_path: Path of the ONNX file, for error messages.

        Raises:
            PolicyError: If the files are inconsistent or do not match this version.
        """
        json_path = onnx_path.with_suffix(".json")
        with _reject_damaged(json_path):
            observation = _read_observation(metadata, json_path)
            board_sizes = _read_board_sizes(metadata)
        with _reject_damaged(onnx_path):
            session = _open_policy_session(model, onnx_path)
        policy = cls(observation, board_sizes, session, metadata, model)
        policy._check_output(onnx_path)
        return policy

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the contents of the files, because sessions cannot be copied."""
        return self.from_contents, (self.model, self.metadata, Path("policy.onnx"))

    @property
    def _trained(self) -> Mapping[str, Any]:
        """Environment of the training; empty if the metadata has none."""
        trained: Mapping[str, Any] = self.metadata.get("training", {}).get("env_config", {})
        return trained

    @property
    def rulesets(self) -> tuple[str, ...]:
        """Names of the rulesets that the policy was trained for."""
        names = self.metadata.get("rulesets")
        return tuple(names or [self._trained.get("ruleset", EnvConfig.ruleset)])

    @property
    def action_mask_kind(self) -> str:
        """Mask kind of the action mask that training used, such as ``fatal``."""
        return str(self._trained.get("action_mask", EnvConfig.action_mask))

    def observation_shape(self, width: int, height: int) -> tuple[int, int, int]:
        """Return the shape (C, H, W) of one observation of a board.

        A network with a fixed input size uses the largest board size of the policy.
        """
        if not self.metadata.get("any_size", False):
            width, height = (max(sides) for sides in zip(*self.board_sizes, strict=True))
        return self.observation.shape(width, height)

    @functools.cached_property
    def state_size(self) -> int:
        """Number of floats of a recurrent state; 0 if the network is not recurrent."""
        return state_size(self.session)

    def action_scores(
        self, batch: NDArray[np.uint8], seconds: float | None = None
    ) -> NDArray[np.float32]:
        """Return the Q-values at the start of a game, float32 [B, 4]; see `step`."""
        return self.step(batch, np.zeros((len(batch), self.state_size), np.float32), seconds)[0]

    def step(
        self,
        batch: NDArray[np.uint8],
        states: NDArray[np.float32],
        seconds: float | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the Q-values of the moves, float32 [B, 4], and the next states.

        Args:
            batch: Observations, uint8 [B, C, H, W].
            states: Recurrent states, float32 [B, state_size].
            seconds: Timeout in seconds, at least 1 s; None selects 60 s.

        Raises:
            PolicyTimeoutError: If the network does not return within the time budget.
        """
        values, after = run_policy(self.session, batch, states, seconds)
        return np.asarray(values, np.float32), after

    def check_board_size(self, width: int, height: int) -> None:
        """Raise `PolicyError` if the policy does not support boards of this size."""
        if (width, height) not in self.board_sizes:
            known = ", ".join(f"{x}x{y}" for x, y in sorted(self.board_sizes))
            raise PolicyError(
                f"the policy plays boards of {known}, not {width}x{height}; train a policy on "
                "that size"
            )

    def check_game(self, board: Board) -> None:
        """Raise `PolicyError` if the policy does not support the game.

        The board size, the ruleset, the map and the view radius must match the training. Engines
        without maps send an empty map name, which selects the standard map.
        """
        self.check_board_size(board.width, board.height)
        self.check_rules(board.game)

    def check_rules(self, game: Game) -> None:
        """Raise `PolicyError` if ruleset, map or view radius differ from the known training."""
        if not (trained := self._trained):
            return
        trained_map = trained.get("map", EnvConfig.map)
        if game.ruleset not in self.rulesets or (game.map or "standard") != trained_map:
            rules = " and ".join(map(repr, self.rulesets))
            raise PolicyError(
                f"the policy plays the rules {rules} on the map {trained_map!r}, "
                f"not {format_value(game.ruleset)} on {format_value(game.map)}; "
                "train a policy on these"
            )
        view_radius = (trained.get("settings") or {}).get("view_radius")
        if game.settings.view_radius != view_radius:
            raise PolicyError(
                f"the policy plays games with view_radius {view_radius}, "
                f"not {game.settings.view_radius}; train a policy on this view radius"
            )

    def _check_output(self, path: Path) -> None:
        """Run the network once per input size, and check the shape of the output.

        These runs also warm up the session.
        """
        end = time.monotonic() + LOAD_TIMEOUT_S
        for shape in sorted({(1, *self.observation_shape(*size)) for size in self.board_sizes}):
            states = np.zeros((1, self.state_size), np.float32)
            try:
                values, after = self.step(np.zeros(shape, np.uint8), states, end - time.monotonic())
            except PolicyTimeoutError as error:
                raise PolicyError(f"{path}: {error}") from error
            except Exception as error:  # The exceptions of onnxruntime have no common base class.
                raise PolicyError(
                    f"{path}: the network rejects {INPUT!r} of shape {shape}: {error}"
                ) from error
            if values.shape != (1, len(MOVES)):
                raise PolicyError(f"{path}: {OUTPUT!r} must have shape (1, 4), got {values.shape}")
            if after.shape != states.shape:
                raise PolicyError(
                    f"{path}: {STATE_OUTPUT!r} must have the shape of {STATE_INPUT!r}, "
                    f"{states.shape}, got {after.shape}"
                )


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

    unread = [("model", model, 0)]
    try:
        if model[_ORT_SIGNATURE[0]] == _ORT_SIGNATURE[1]:
            raise DecodeError("onnxruntime's own format")
        while unread:
            kind, data, depth = unread.pop()
            if depth > _MAX_ONNX_DEPTH:
                raise DecodeError("nested too deeply")
            for field in UnknownFieldSet(Empty.FromString(data)):  # type: ignore[attr-defined]
                if kind == "tensor" and field.field_number in _EXTERNAL_DATA_FIELDS and field.data:
                    raise PolicyError(
                        f"{onnx_path}: has values in other files (external data); save the network "
                        "as one file"
                    )
                if child := _ONNX_CHILDREN[kind].get(field.field_number):
                    unread.append((child, field.data, depth + 1))
    except (DecodeError, TypeError) as error:
        raise PolicyError(
            f"{onnx_path}: not a network that onnxruntime can read: {error}"
        ) from error


def _read_bytes(path: Path) -> bytes:
    is_json = path.suffix == ".json"
    remedy = "copy it beside the .onnx file" if is_json else "give the path of a policy.onnx"
    try:
        return read_bounded(path, _MAX_MODEL_BYTES)
    except ValueError as error:
        raise PolicyError(f"{error}; {remedy}") from error
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}; {remedy}") from error


def _parse_metadata(text: bytes) -> dict[str, Any]:
    try:
        metadata = parse_small_json(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(metadata, dict):
        raise ValueError("must contain a JSON object")
    version = metadata.get("format")
    if type(version) is not int or version not in (1, _FORMAT_VERSION):
        raise ValueError(f"format must be 1 or {_FORMAT_VERSION}, got {format_value(version)}")
    if (actions := metadata.get("actions")) != list(MOVES):
        raise ValueError(f"actions must be {list(MOVES)}, got {format_value(actions)}")
    training = metadata.get("training", {})
    if not (isinstance(training, dict) and isinstance(training.get("env_config", {}), dict)):
        raise ValueError(
            f"training must contain the object env_config, got {format_value(training)}"
        )
    return _convert_format_1(metadata) if version == 1 else metadata


def _convert_format_1(metadata: dict[str, Any]) -> dict[str, Any]:
    """Convert the metadata from format 1 to format 2, which has the current names."""
    converted = metadata | {"format": _FORMAT_VERSION}
    if "observation" in converted:
        converted["observation"] = convert_observation(converted["observation"])
    training = converted.get("training")
    if training and "env_config" in training:
        env_config = convert_env_config(training["env_config"])
        converted["training"] = training | {"env_config": env_config}
    return converted


def _read_observation(metadata: Mapping[str, Any], path: Path) -> Observation:
    """Return the observation that the metadata names."""
    if "observation" not in metadata:
        raise ValueError("observation is missing")
    try:
        return observations.get(metadata["observation"])
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{path}: observation: {error}") from error


def _read_board_sizes(metadata: Mapping[str, Any]) -> frozenset[tuple[int, int]]:
    """Parse and check the board sizes in the metadata."""
    sizes = metadata.get("board_sizes")
    try:
        pairs = frozenset((int(width), int(height)) for width, height in sizes)  # type: ignore[union-attr]
    except (TypeError, ValueError, OverflowError):
        pairs = frozenset()
    if not 1 <= len(pairs) <= _MAX_BOARD_SIZES or not all(
        1 <= side <= MAX_READABLE_BOARD_SIZE for pair in pairs for side in pair
    ):
        raise ValueError(f"board_sizes must be a list like [[11, 11]], got {format_value(sizes)}")
    return pairs


def _open_policy_session(model: bytes, path: Path) -> Any:
    """Open a session, and check the network's inputs and outputs."""
    session = open_session(model, path)
    inputs = {node.name: node.type for node in session.get_inputs()}
    outputs = {node.name: node.type for node in session.get_outputs()}
    wanted = {INPUT: "tensor(uint8)"}, {OUTPUT: _FLOATS}
    if STATE_INPUT in inputs:
        wanted = wanted[0] | {STATE_INPUT: _FLOATS}, wanted[1] | {STATE_OUTPUT: _FLOATS}
    if inputs != wanted[0] or not wanted[1].items() <= outputs.items():
        raise ValueError(
            f"the inputs must be {wanted[0]} and the outputs {wanted[1]}, "
            f"got inputs {inputs} and outputs {outputs}"
        )
    for node in session.get_inputs():
        size = node.shape[-1]
        is_valid = len(node.shape) == 2 and isinstance(size, int) and 1 <= size <= _MAX_STATE_SIZE
        if node.name == STATE_INPUT and not is_valid:
            raise ValueError(
                f"{STATE_INPUT!r} must have the shape [batch, size] with a size of at most "
                f"{_MAX_STATE_SIZE}, got {node.shape}"
            )
    return session
