"""Trained policies, stored as ``policy.onnx`` with metadata in ``policy.json``.

The network maps ``observations`` uint8 ``[B, C, H, W]`` to ``q_values`` float32 ``[B, 4]``. A
recurrent network also maps ``state_in`` to ``state_out``, float32 ``[B, state_size]``. The
JSON file contains the observation, the board sizes of the training, the order of the actions, and
the SHA-256 hash of the ONNX file. The hash detects mismatched files.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from battlesnake_gym import policy_file
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.board_json import MAX_READABLE_BOARD_SIZE
from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.mdp import observations
from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.policy_file import INPUT, OUTPUT, STATE_INPUT, STATE_OUTPUT
from battlesnake_gym.policy_file import PolicyError as PolicyError
from battlesnake_gym.rules import MOVES

_MAX_BOARD_SIZES = 100

_FLOATS = "tensor(float)"
"""Name of the type float32 in onnxruntime."""

_MAX_STATE_SIZE = 4096
"""Maximum number of floats of a recurrent state, so that the sessions of games stay small."""


@dataclass(frozen=True)
class OnnxPolicy:
    """Loaded policy.

    The object contains no states. Any number of games and threads can share the object.

    Attributes:
        observation: Observation that encodes the input of the network.
        board_sizes: Pairs (width, height) that the policy supports.
        session: onnxruntime session of the network.
        metadata: Content of the JSON file.
    """

    observation: Observation
    board_sizes: frozenset[tuple[int, int]]
    session: onnxruntime.InferenceSession
    metadata: Mapping[str, Any]

    @classmethod
    def load(cls, path: str | Path) -> OnnxPolicy:
        """Load a policy.

        Args:
            path: Path of the ONNX file; the JSON file has the same name with the suffix ``.json``.

        Raises:
            PolicyError: If the files are inconsistent or do not match this version.
        """
        onnx_path = Path(path)
        return cls.from_contents(*policy_file.read(onnx_path), onnx_path)

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
        policy = cls(
            observation=_read_observation(metadata, json_path),
            board_sizes=_read_board_sizes(metadata, json_path),
            session=_open_session(model, onnx_path),
            metadata=metadata,
        )
        policy._check_output(onnx_path)
        return policy

    @property
    def rulesets(self) -> tuple[str, ...]:
        """Names of the rulesets that the policy was trained for."""
        names = self.metadata.get("rulesets", [self.metadata["training"]["env_config"]["ruleset"]])
        return tuple(names)

    @property
    def action_mask_kind(self) -> str:
        """Mask kind of the action mask that training used, such as ``fatal``."""
        trained = self.metadata.get("training", {}).get("env_config", {})
        return str(trained.get("action_mask", EnvConfig.action_mask))

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
        return policy_file.state_size(self.session)

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
        values, after = policy_file.run_policy(self.session, batch, states, seconds)
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

        The board size, the ruleset and the map must match the training. Engines without maps send
        an empty map name, which selects the standard map.
        """
        self.check_board_size(board.width, board.height)
        trained, game = self.metadata["training"]["env_config"], board.game
        if game.ruleset not in self.rulesets or (game.map or "standard") != trained["map"]:
            rules = " and ".join(map(repr, self.rulesets))
            raise PolicyError(
                f"the policy plays the rules {rules} on the map {trained['map']!r}, "
                f"not {format_value(game.ruleset)} on {format_value(game.map)}; "
                "train a policy on these"
            )

    def _check_output(self, path: Path) -> None:
        """Run the network once per input size, and check the shape of the output.

        These runs also warm up the session.
        """
        end = time.monotonic() + policy_file.LOAD_TIMEOUT_S
        for shape in sorted({(1, *self.observation_shape(*size)) for size in self.board_sizes}):
            states = np.zeros((1, self.state_size), np.float32)
            try:
                values, after = self.step(np.zeros(shape, np.uint8), states, end - time.monotonic())
            except policy_file.PolicyTimeoutError as error:
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


def _read_observation(metadata: Mapping[str, Any], path: Path) -> Observation:
    """Return the observation that the metadata names."""
    try:
        return observations.get(metadata["observation"])
    except KeyError as error:
        raise PolicyError(f"{path}: observation is missing; export the policy again") from error
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{path}: observation: {error}") from error


def _read_board_sizes(metadata: Mapping[str, Any], path: Path) -> frozenset[tuple[int, int]]:
    """Parse and check the board sizes in the metadata."""
    sizes = metadata.get("board_sizes")
    try:
        pairs = frozenset((int(width), int(height)) for width, height in sizes)  # type: ignore[union-attr]
    except (TypeError, ValueError):
        pairs = frozenset()
    if not 1 <= len(pairs) <= _MAX_BOARD_SIZES or not all(
        1 <= side <= MAX_READABLE_BOARD_SIZE for pair in pairs for side in pair
    ):
        raise PolicyError(
            f"{path}: board_sizes must be a list like [[11, 11]], got {format_value(sizes)}; "
            "export the policy again"
        )
    return pairs


def _open_session(model: bytes, path: Path) -> onnxruntime.InferenceSession:
    """Open a session, and check the network's inputs and outputs."""
    session: onnxruntime.InferenceSession = policy_file.open_session(model, path)
    inputs = {node.name: node.type for node in session.get_inputs()}
    outputs = {node.name: node.type for node in session.get_outputs()}
    wanted = {INPUT: "tensor(uint8)"}, {OUTPUT: _FLOATS}
    if STATE_INPUT in inputs:
        wanted = wanted[0] | {STATE_INPUT: _FLOATS}, wanted[1] | {STATE_OUTPUT: _FLOATS}
    if inputs != wanted[0] or not wanted[1].items() <= outputs.items():
        raise PolicyError(
            f"{path}: the inputs must be {wanted[0]} and the outputs {wanted[1]}, "
            f"got inputs {inputs} and outputs {outputs}; export the policy again"
        )
    for node in session.get_inputs():
        size = node.shape[-1]
        is_valid = len(node.shape) == 2 and isinstance(size, int) and 1 <= size <= _MAX_STATE_SIZE
        if node.name == STATE_INPUT and not is_valid:
            raise PolicyError(
                f"{path}: {STATE_INPUT!r} must have the shape [batch, size] with a size of at most "
                f"{_MAX_STATE_SIZE}, got {node.shape}; export the policy again"
            )
    return session
