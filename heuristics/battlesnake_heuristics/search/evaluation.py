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

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import MAX_JSON_BYTES, format_value, parse, sanitize_text
from battlesnake_gym.common.files import read_bounded, write_atomically

_FORMAT = 2
MAGIC = b"battlesnake evaluation"
BUILTIN_PATH = Path(__file__).parent / "evaluations" / "champion.evaluation"
"""The evaluation that comes with the package; its model card lies beside it."""


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """One number that a network is given: its name, what it counts in, and its formula in C."""

    name: str
    unit: str
    formula: str


_TABLE = (Path(__file__).parent / "csrc" / "input_table.h").read_text("utf-8")
BOARD_INPUTS, SNAKE_INPUTS = (
    {
        name: NetworkInput(name, unit, formula)
        for name, unit, formula in re.findall(row, _TABLE, re.M)
    }
    for row in (r'^BOARD\((\w+), "(.*?)", (.*)\)$', r'^SNAKE\((\w+), "(.*?)", (.*)\)$')
)
"""The inputs by their names, of the board once and of a snake for each of `INPUT_GROUPS`, in order."""

INPUT_GROUPS = "own", "strongest", "nearest", "mean"
"""Whose inputs of a snake follow those of the board; the last two rivals' only with several."""

NUM_INPUTS, NUM_DUEL_INPUTS = (len(BOARD_INPUTS) + number * len(SNAKE_INPUTS) for number in (4, 2))
HIDDEN1, HIDDEN2, STACKS = 32, 16, 3
"""The shape of a network: inputs (`NUM_DUEL_INPUTS` of them with one rival), two hidden layers of at
most these, and stacks of weights for two, three, and more living snakes; see ``csrc/network.h``."""

_SHAPE = {"board": list(BOARD_INPUTS), "snake": list(SNAKE_INPUTS), "hidden": [HIDDEN1, HIDDEN2]}
"""What a file says of its numbers: names of inputs and sizes."""

_FORMAT_1_SHAPE = {
    "board": list(BOARD_INPUTS)[:16],
    "snake": list(SNAKE_INPUTS)[:16],
    "hidden": [32, 16],
}
"""That of format 1, which named nothing."""

INPUT_UNIT, WEIGHT_UNIT = 256, 1024
MAX_ACTIVATION, MAX_WEIGHT = 1023, 8191
"""Inputs and hidden values lie within ``LARGEST`` / ``INPUT_UNIT``, weights within ``HEAVIEST`` /
``WEIGHT_UNIT``."""

_LOGIT_PER_CELL = 0.1
"""A logit of 1 is worth ten cells of territory to the search."""


def _size(inputs: int, hidden: int, second: int) -> int:
    """Bytes of all stacks: weights of 16 bits, biases of 32."""
    return 2 * STACKS * ((inputs + 2 + second) * hidden + 3 * second + 2)


_NUM_BYTES = _size(NUM_INPUTS, HIDDEN1, HIDDEN2)
"""Bytes of the numbers that the C code reads."""


class EvaluationError(ValueError):
    """A file that is no evaluation, is damaged or of another version; says which, what to do."""


@dataclass(frozen=True)
class Evaluation:
    """A loaded evaluation: ``network_bytes`` for the C code, and the ``facts`` of its file.

    ``facts["trained_for"]`` has ``rulesets``, ``maps``, ``sizes`` ([width, height] each) and
    ``snakes``.
    """

    network_bytes: bytes
    metadata: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Hold the facts as the file's JSON gives them back: a new one plays as it will then."""
        object.__setattr__(self, "metadata", json.loads(json.dumps(dict(self.metadata))))

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read a file whole; raises `EvaluationError` where anything in it does not fit."""
        try:
            data = read_bounded(Path(path), _NUM_BYTES + MAX_JSON_BYTES)
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
            shape = _FORMAT_1_SHAPE if version == 1 else facts.pop("shape")
            places, hidden, second = _parse_shape(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise EvaluationError(
                f"{path}: its facts are damaged ({sanitize_text(str(error), 200)}); fit it again"
            ) from error
        if version not in (1, _FORMAT):
            raise EvaluationError(
                f"{path}: format is {format_value(version)}, this version reads 1 and {_FORMAT}; "
                "fit it again"
            )
        size = _size(len(places), hidden, second)
        if digest != hashlib.sha256(numbers).hexdigest() or len(numbers) != size:
            raise EvaluationError(f"{path}: its numbers are damaged; fetch or fit it again")
        return cls(_pad_network(numbers, places, hidden, second), facts)

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all, with the hash of the numbers."""
        digest = hashlib.sha256(self.network_bytes).hexdigest()
        facts = {**self.metadata, "format": _FORMAT, "shape": _SHAPE, "sha256": digest}
        data = b"\n".join((MAGIC, json.dumps(facts).encode(), self.network_bytes))
        write_atomically(path, lambda part: part.write_bytes(data))

    def unsupported_reason(self, board: Board) -> str:
        """Why the network cannot value this game, or "" where it was trained for it."""
        trained, living = self.metadata["trained_for"], len(board.living)
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
def load_builtin() -> Evaluation:
    """The evaluation that comes with the package."""
    return Evaluation.load(BUILTIN_PATH)


def score_to_probability(score: float) -> float:
    """What a score of the search, in cells of territory, means: the share of a point to expect."""
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, score * _LOGIT_PER_CELL))))


def _parse_shape(shape: Mapping[str, Any]) -> tuple[list[int], int, int]:
    """Which input of ours each input of a file is, and how many hidden values it has.

    Raises ``KeyError``, ``TypeError`` or ``ValueError`` where it has others or too many.
    """
    board, snake = (
        {name: k for k, name in enumerate(group)} for group in (BOARD_INPUTS, SNAKE_INPUTS)
    )
    places = [board[name] for name in shape["board"]]
    for start in range(len(BOARD_INPUTS), NUM_INPUTS, len(SNAKE_INPUTS)):
        places += [start + snake[name] for name in shape["snake"]]
    hidden, second = shape["hidden"]
    if len(set(places)) < len(places) or len(places) % 2:
        raise ValueError("shape: its inputs must differ, and number evenly")
    for name, size, most in (("first", hidden, HIDDEN1), ("second", second, HIDDEN2)):
        if type(size) is not int or not 2 <= size <= most or size % 2:
            raise ValueError(f"shape.hidden: the {name} must be even, 2 to {most}, got {size!r}")
    return places, hidden, second


def _pad_network(numbers: bytes, places: Sequence[int], hidden: int, second: int) -> bytes:
    """A file's stacks as the C code reads them: what the file lacks weighs nothing.

    Plain Python, since a packed snake reads them where there is no numpy.
    """
    narrow, wide = memoryview(numbers).cast("h"), memoryview(bytearray(_NUM_BYTES)).cast("h")
    at = to = 0  # in words of 16 bits
    for _ in range(STACKS):
        for rows, columns, most_rows, most_columns in (
            (places, hidden, NUM_INPUTS, HIDDEN1),
            (range(hidden), second, HIDDEN1, HIDDEN2),
        ):
            for row, place in enumerate(rows):  # by pairs of rows, column by column
                here = at + row // 2 * 2 * columns + row % 2
                there = to + place // 2 * 2 * most_columns + place % 2
                wide[there : there + 2 * columns : 2] = narrow[here : here + 2 * columns : 2]
            at += len(rows) * columns
            to += most_rows * most_columns
            wide[to : to + 2 * columns] = narrow[at : at + 2 * columns]
            at += 2 * columns
            to += 2 * most_columns
        wide[to : to + second] = narrow[at : at + second]
        wide[to + HIDDEN2 : to + HIDDEN2 + 2] = narrow[at + second : at + second + 2]
        at += second + 2
        to += HIDDEN2 + 2
    return wide.tobytes()


def _check_trained(trained: Mapping[str, Any]) -> None:
    for name in ("rulesets", "maps", "sizes", "snakes"):
        if not isinstance(trained[name], list) or not trained[name]:
            raise ValueError(f"trained_for.{name} must be a list with something in it")
