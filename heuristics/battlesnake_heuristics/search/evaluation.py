"""Learned evaluations: what a position is worth, from a small network that the search asks in C.

A file holds everything: a line that names the format, a line of JSON with the facts (what the
network was trained for, by which command, and the hash of its numbers), then the numbers. They are
whole numbers, so that every processor computes the same value; ``csrc/network.h`` says how they are
counted. What the network is given of a position is one table, ``csrc/input_table.h``. A file names
its inputs and how many hidden values it has, so that one of fewer inputs plays as it always did.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import LARGEST_FACTS, parse, plain, shown
from battlesnake_gym.common.files import read_within, write_atomically

FORMAT = 2
MAGIC = b"battlesnake evaluation"
SHIPPED = Path(__file__).parent / "evaluations" / "champion.evaluation"
"""The evaluation that comes with the package; its model card lies beside it."""


@dataclass(frozen=True, slots=True)
class Input:
    """One number that a network is given: its name, what it counts in, and its formula in C."""

    name: str
    unit: str
    formula: str


_TABLE = (Path(__file__).parent / "csrc" / "input_table.h").read_text("utf-8")
BOARD, SNAKE = (
    {name: Input(name, unit, formula) for name, unit, formula in re.findall(row, _TABLE, re.M)}
    for row in (r'^BOARD\((\w+), "(.*?)", (.*)\)$', r'^SNAKE\((\w+), "(.*?)", (.*)\)$')
)
"""The inputs by their names, of the board once and of a snake for each of `SNAKES`, in order."""

SNAKES = "own", "strongest", "nearest", "mean"
"""Whose inputs of a snake follow those of the board; the last two rivals' only with several."""

INPUTS, DUEL_INPUTS = (len(BOARD) + number * len(SNAKE) for number in (4, 2))
HIDDEN, SECOND, STACKS = 32, 16, 3
"""The shape of a network: inputs (`DUEL_INPUTS` of them with one rival), two hidden layers of at
most these, and stacks of weights for two, three, and more living snakes; see ``csrc/network.h``."""

SHAPE = {"board": list(BOARD), "snake": list(SNAKE), "hidden": [HIDDEN, SECOND]}
"""What a file says of its numbers: names of inputs and sizes."""

FIRST_SHAPE = {"board": list(BOARD)[:16], "snake": list(SNAKE)[:16], "hidden": [32, 16]}
"""That of format 1, which named nothing."""

INPUT_UNIT, WEIGHT_UNIT = 256, 1024
LARGEST, HEAVIEST = 1023, 8191
"""Inputs and hidden values lie within ``LARGEST`` / ``INPUT_UNIT``, weights within ``HEAVIEST`` /
``WEIGHT_UNIT``."""

CELLS_TO_LOGIT = 0.1
"""A logit of 1 is worth ten cells of territory to the search."""


def _layers(inputs: int, hidden: int, second: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("first", np.int16, (inputs // 2, hidden, 2)),
            ("first_bias", np.int32, hidden),
            ("second", np.int16, (hidden // 2, second, 2)),
            ("second_bias", np.int32, second),
            ("last", np.int16, second),
            ("last_bias", np.int32),
        ]
    )


LAYERS = _layers(INPUTS, HIDDEN, SECOND)
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
            data = read_within(Path(path), STACKS * LAYERS.itemsize + LARGEST_FACTS)
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
            shape = FIRST_SHAPE if version == 1 else facts.pop("shape")
            layers, places = _shaped(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise EvaluationError(
                f"{path}: its facts are damaged ({plain(str(error), 200)}); fit it again"
            ) from error
        if version not in (1, FORMAT):
            raise EvaluationError(
                f"{path}: format is {shown(version)}, this version reads 1 and {FORMAT}; "
                "fit it again"
            )
        size = STACKS * layers.itemsize
        if digest != hashlib.sha256(numbers).hexdigest() or len(numbers) != size:
            raise EvaluationError(f"{path}: its numbers are damaged; fetch or fit it again")
        return cls(_widened(np.frombuffer(numbers, layers), places), facts)

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all, with the hash of the numbers."""
        digest = hashlib.sha256(self.numbers).hexdigest()
        facts = {**self.facts, "format": FORMAT, "shape": SHAPE, "sha256": digest}
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


def _shaped(shape: Mapping[str, Any]) -> tuple[np.dtype[np.void], list[int]]:
    """The layers of a file, and which input of ours each of its inputs is.

    Raises ``KeyError``, ``TypeError`` or ``ValueError`` where it has others or too many.
    """
    board, snake = ({name: k for k, name in enumerate(group)} for group in (BOARD, SNAKE))
    places = [board[name] for name in shape["board"]]
    for start in range(len(BOARD), INPUTS, len(SNAKE)):
        places += [start + snake[name] for name in shape["snake"]]
    hidden, second = shape["hidden"]
    if len(set(places)) < len(places) or len(places) % 2:
        raise ValueError("shape: its inputs must differ, and number evenly")
    for name, size, most in (("first", hidden, HIDDEN), ("second", second, SECOND)):
        if type(size) is not int or not 2 <= size <= most or size % 2:
            raise ValueError(f"shape.hidden: the {name} must be even, 2 to {most}, got {size!r}")
    return _layers(len(places), hidden, second), places


def _widened(layers: NDArray[np.void], places: Sequence[int]) -> bytes:
    """A file's stacks as the C code reads them: what the file lacks weighs nothing."""
    wide = np.zeros(STACKS, LAYERS)
    hidden, second = layers.dtype["first_bias"].shape[0], layers.dtype["last"].shape[0]
    for stack, narrow in zip(wide, layers, strict=True):
        first = np.zeros((INPUTS, HIDDEN), np.int16)
        first[places, :hidden] = narrow["first"].transpose(0, 2, 1).reshape(len(places), hidden)
        stack["first"] = first.reshape(INPUTS // 2, 2, HIDDEN).transpose(0, 2, 1)
        stack["first_bias"][:hidden] = narrow["first_bias"]
        stack["second"][: hidden // 2, :second] = narrow["second"]
        stack["second_bias"][:second] = narrow["second_bias"]
        stack["last"][:second] = narrow["last"]
        stack["last_bias"] = narrow["last_bias"]
    return wide.tobytes()


def _check_trained(trained: Mapping[str, Any]) -> None:
    for name in ("rulesets", "maps", "sizes", "snakes"):
        if not isinstance(trained[name], list) or not trained[name]:
            raise ValueError(f"trained_for.{name} must be a list with something in it")
