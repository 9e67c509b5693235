"""Learned evaluations: what a position is worth, from a small network that the search asks in C.

A file holds everything: a line that names the format, a line of JSON with the facts (what the
network was trained for, by which command, and the hash of its numbers), then the numbers. They are
whole numbers, so that every processor computes the same value; ``csrc/network.h`` says how they are
counted and ``csrc/inputs.h`` what the network is given of a position.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import LARGEST_FACTS, parse, plain, shown
from battlesnake_gym.common.files import read_within, write_atomically

FORMAT = 1
MAGIC = b"battlesnake evaluation"
SHIPPED = Path(__file__).parent / "evaluations" / "champion.evaluation"
"""The evaluation that comes with the package; its model card lies beside it."""

INPUTS, DUEL_INPUTS, HIDDEN, SECOND, STACKS = 80, 48, 32, 16, 3
"""The shape of a network: inputs (`DUEL_INPUTS` of them with one rival), two hidden layers, and
stacks of weights for two, three, and more living snakes. As in ``csrc/network.h``."""

INPUT_UNIT, WEIGHT_UNIT = 256, 1024
LARGEST, HEAVIEST = 1023, 8191
"""Inputs and hidden values lie within ``LARGEST`` / ``INPUT_UNIT``, weights within ``HEAVIEST`` /
``WEIGHT_UNIT``."""

CELLS_TO_LOGIT = 0.1
"""A logit of 1 is worth ten cells of territory to the search."""

LAYERS = np.dtype(
    [
        ("first", np.int16, (INPUTS // 2, HIDDEN, 2)),
        ("first_bias", np.int32, HIDDEN),
        ("second", np.int16, (HIDDEN // 2, SECOND, 2)),
        ("second_bias", np.int32, SECOND),
        ("last", np.int16, SECOND),
        ("last_bias", np.int32),
    ]
)
"""One stack as the C code reads it: weights by pairs of inputs."""

FloatLayers = Mapping[str, NDArray[np.floating[Any]]]
"""One stack before rounding: ``first`` [HIDDEN, INPUTS], ``second`` [SECOND, HIDDEN], ``last``
[SECOND], and the biases ``first_bias``, ``second_bias``, ``last_bias``."""


class EvaluationError(ValueError):
    """A file that is no evaluation, is damaged or of another version; says which, what to do."""


@dataclass(frozen=True)
class Evaluation:
    """A loaded evaluation: ``numbers`` for the C code, and the ``facts`` of its file.

    ``facts["trained_for"]`` has ``rulesets``, ``maps``, ``sizes`` ([width, height] each) and
    ``snakes``.
    """

    numbers: bytes
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Hold the facts as the file's JSON gives them back: a new one plays as it will then."""
        object.__setattr__(self, "facts", json.loads(json.dumps(dict(self.facts))))

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read a file whole; raises `EvaluationError` where anything in it does not fit."""
        try:
            data = read_within(Path(path), size_in_bytes() + LARGEST_FACTS)
        except ValueError as error:
            raise EvaluationError(f"{error}; give another file") from error
        except OSError as error:
            raise EvaluationError(
                f"{path}: {error.strerror}; give the path of an evaluation"
            ) from error
        return cls.read(data, path)

    @classmethod
    def read(cls, data: bytes, path: str | Path) -> Evaluation:
        """As `load`, of what was read from ``path``."""
        try:
            magic, header, numbers = data.split(b"\n", 2)
        except ValueError as error:
            raise EvaluationError(f"{path}: not an evaluation; give another file") from error
        if magic != MAGIC:
            raise EvaluationError(f"{path}: not an evaluation; give another file")
        try:
            facts = parse(header)
            version, digest, trained = facts["format"], facts["sha256"], facts["trained_for"]
            _check_trained(trained)
        except (KeyError, TypeError, ValueError) as error:
            raise EvaluationError(
                f"{path}: its facts are damaged ({plain(str(error), 200)}); fit it again"
            ) from error
        if version != FORMAT:
            raise EvaluationError(
                f"{path}: format is {shown(version)}, this version reads {FORMAT}; fit it again"
            )
        if digest != hashlib.sha256(numbers).hexdigest() or len(numbers) != size_in_bytes():
            raise EvaluationError(f"{path}: its numbers are damaged; fetch or fit it again")
        return cls(numbers, facts)

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all, with the hash of the numbers."""
        digest = hashlib.sha256(self.numbers).hexdigest()
        facts = {"format": FORMAT, **self.facts, "sha256": digest}
        data = b"\n".join((MAGIC, json.dumps(facts).encode(), self.numbers))
        write_atomically(path, lambda part: part.write_bytes(data))

    def objection(self, board: Board) -> str:
        """Why the network cannot value this game, or "" where it was trained for it."""
        trained, living = self.facts["trained_for"], len(board.living)
        if board.game.ruleset not in trained["rulesets"]:
            return f"trained for {', '.join(trained['rulesets'])}, not {board.game.ruleset}"
        if board.game.map and board.game.map not in trained["maps"]:
            return f"trained for the map {', '.join(trained['maps'])}, not {board.game.map}"
        if [board.width, board.height] not in trained["sizes"]:
            sizes = ", ".join(f"{width}x{height}" for width, height in trained["sizes"])
            return f"trained for boards of {sizes}, not {board.width}x{board.height}"
        if living > max(trained["snakes"]):
            return f"trained for up to {max(trained['snakes'])} snakes, not {living}"
        return "no one to play against" if living < 2 else ""


@functools.cache
def shipped() -> Evaluation:
    """The evaluation that comes with the package."""
    return Evaluation.load(SHIPPED)


def chance(score: float) -> float:
    """What a score of the search, in cells of territory, means: the share of a point to expect."""
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, score * CELLS_TO_LOGIT))))


def size_in_bytes() -> int:
    """Of the numbers of an evaluation."""
    return STACKS * LAYERS.itemsize


def packed(stacks: Sequence[FloatLayers]) -> bytes:
    """Round the weights of all stacks to whole numbers, clipped to what the C code can hold."""
    layers = np.zeros(STACKS, LAYERS)
    for stack, weights in zip(layers, stacks, strict=True):
        stack["first"] = _paired(weights["first"])
        stack["second"] = _paired(weights["second"])
        stack["last"] = _rounded(weights["last"])
        for name in ("first_bias", "second_bias", "last_bias"):
            limit = 1 << 29
            bias = np.rint(np.asarray(weights[name], np.float64) * INPUT_UNIT * WEIGHT_UNIT)
            stack[name] = np.clip(bias, -limit, limit).astype(np.int32)
    return layers.tobytes()


def _rounded(weights: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    whole = np.rint(np.asarray(weights, np.float64) * WEIGHT_UNIT)
    return np.clip(whole, -HEAVIEST, HEAVIEST).astype(np.int16)


def _paired(weights: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    """[out, in] as [in / 2, out, 2]."""
    outputs, inputs = weights.shape
    return _rounded(weights).reshape(outputs, inputs // 2, 2).transpose(1, 0, 2)


def _check_trained(trained: Mapping[str, Any]) -> None:
    for name in ("rulesets", "maps", "sizes", "snakes"):
        if not isinstance(trained[name], list) or not trained[name]:
            raise ValueError(f"trained_for.{name} must be a list with something in it")
