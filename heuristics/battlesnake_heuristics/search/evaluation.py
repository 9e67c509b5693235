"""Learned evaluations: small quantized networks for the leaves of the C search.

A file has three parts: a line that names the format, a line of JSON metadata, and the weights. The
metadata contain the supported games, the training command, and the hash of the weights. The
weights are integers, so that all processors compute the same value. ``csrc/network.h`` defines the
scales of the weights, and the table ``csrc/input_table.h`` defines the network inputs. A file lists
its inputs and hidden layer sizes. A network with fewer inputs therefore computes the same values
after new inputs are added to the table.
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
from battlesnake_gym.boards.json_fields import (
    MAX_JSON_BYTES,
    format_value,
    parse_small_json,
    sanitize_text,
)
from battlesnake_gym.common.files import read_bounded, write_atomically

_FORMAT_VERSION = 2
FILE_SIGNATURE = b"battlesnake evaluation"
BUILTIN_PATH = Path(__file__).parent / "evaluations" / "champion.evaluation"
"""Path of the built-in evaluation file.

The directory of the file also contains its model card.
"""


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """One network input: its name, its unit, and its C formula."""

    name: str
    unit: str
    formula: str


_INPUT_TABLE = (Path(__file__).parent / "csrc" / "input_table.h").read_text("utf-8")
BOARD_INPUTS, SNAKE_INPUTS = (
    {
        name: NetworkInput(name, unit, formula)
        for name, unit, formula in re.findall(row, _INPUT_TABLE, re.M)
    }
    for row in (r'^BOARD\((\w+), "(.*?)", (.*)\)$', r'^SNAKE\((\w+), "(.*?)", (.*)\)$')
)
"""Board inputs and snake inputs by name, in the order of the input table.

A network has the board inputs once and the snake inputs once per group of `INPUT_GROUPS`.
"""

INPUT_GROUPS = "own", "strongest", "nearest", "mean"
"""Groups of snake inputs, in the order of the network.

The board inputs precede the snake inputs. The last two groups are unused in duels.
"""

NUM_INPUTS, NUM_DUEL_INPUTS = (len(BOARD_INPUTS) + number * len(SNAKE_INPUTS) for number in (4, 2))
HIDDEN1, HIDDEN2, STACKS = 32, 16, 3
"""Network shape.

The numbers are the maximum sizes of the two hidden layers, and the number of weight stacks. The
three stacks evaluate positions with two, three, and four or more living snakes. Duels use only the
first `NUM_DUEL_INPUTS` inputs. ``csrc/network.h`` defines the same constants.
"""

_NETWORK_SHAPE = {
    "board": list(BOARD_INPUTS),
    "snake": list(SNAKE_INPUTS),
    "hidden": [HIDDEN1, HIDDEN2],
}
"""Shape metadata of a new file: input names and hidden layer sizes."""

_FORMAT_1_NETWORK_SHAPE = {
    "board": list(BOARD_INPUTS)[:16],
    "snake": list(SNAKE_INPUTS)[:16],
    "hidden": [32, 16],
}
"""Shape metadata of format 1, whose files do not store the shape."""

INPUT_UNIT, WEIGHT_UNIT = 256, 1024
MAX_ACTIVATION, MAX_WEIGHT = 1023, 8191
"""Maximum absolute values of integer activations and weights.

The scale of inputs and activations is 1 / `INPUT_UNIT`, and the scale of weights is 1 /
`WEIGHT_UNIT`.
"""

_LOGIT_PER_CELL = 0.1
"""Logits of the win probability per cell of territory."""


def _network_bytes_for(inputs: int, hidden: int, second: int) -> int:
    """Return the size in bytes of all stacks with the given layer sizes.

    Weights are int16, and biases are int32.
    """
    return 2 * STACKS * ((inputs + 2 + second) * hidden + 3 * second + 2)


_NUM_NETWORK_BYTES = _network_bytes_for(NUM_INPUTS, HIDDEN1, HIDDEN2)
"""Size in bytes of a network of full shape, as the C code requires."""


@dataclass(frozen=True)
class Evaluation:
    """A learned evaluation: a network and its metadata.

    Attributes:
        network_bytes: Weights in the layout of the C code, padded to the full shape.
        metadata: Metadata of the file. ``metadata["trained_for"]`` contains the supported
            ``rulesets``, ``maps``, ``sizes`` ([width, height] each) and ``snakes`` (numbers of
            snakes).
    """

    network_bytes: bytes
    metadata: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Convert the metadata to JSON types.

        A new evaluation then equals the same evaluation loaded from a file.
        """
        object.__setattr__(self, "metadata", json.loads(json.dumps(dict(self.metadata))))

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Load an evaluation file.

        Raises:
            ValueError: If the file cannot be read, is damaged, or has an unknown format.
        """
        try:
            data = read_bounded(Path(path), _NUM_NETWORK_BYTES + MAX_JSON_BYTES)
        except ValueError as error:
            raise ValueError(f"{error}; give another file") from error
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}; give the path of an evaluation") from error
        return cls.from_bytes(data, path)

    @classmethod
    def from_bytes(cls, data: bytes, path: str | Path) -> Evaluation:
        """Parse the contents of an evaluation file.

        Args:
            data: Contents of the file.
            path: Path of the file, for error messages.

        Raises:
            ValueError: If the contents are damaged or have an unknown format.
        """
        signature, _, rest = data.partition(b"\n")
        header, _, numbers = rest.partition(b"\n")
        if signature != FILE_SIGNATURE:
            raise ValueError(f"{path}: not an evaluation; give another file")
        try:
            metadata = parse_small_json(header)
            version, digest = metadata["format"], metadata["sha256"]
            _check_trained_for(metadata["trained_for"])
            shape = _FORMAT_1_NETWORK_SHAPE if version == 1 else metadata.pop("shape")
            places, hidden, second = _parse_shape(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: the metadata are damaged ({sanitize_text(str(error), 200)}); "
                "train it again"
            ) from error
        if version not in (1, _FORMAT_VERSION):
            raise ValueError(
                f"{path}: format is {format_value(version)}, this version reads 1 and "
                f"{_FORMAT_VERSION}; train it again"
            )
        size = _network_bytes_for(len(places), hidden, second)
        if digest != hashlib.sha256(numbers).hexdigest() or len(numbers) != size:
            raise ValueError(f"{path}: its weights are damaged; download or train it again")
        return cls(_pad_network(numbers, places, hidden, second), metadata)

    def save(self, path: str | Path) -> None:
        """Write the evaluation to a file atomically, with the SHA-256 hash of the weights."""
        digest = hashlib.sha256(self.network_bytes).hexdigest()
        metadata = {
            **self.metadata,
            "format": _FORMAT_VERSION,
            "shape": _NETWORK_SHAPE,
            "sha256": digest,
        }
        data = b"\n".join((FILE_SIGNATURE, json.dumps(metadata).encode(), self.network_bytes))
        write_atomically(path, lambda part: part.write_bytes(data))

    def unsupported_reason(self, board: Board) -> str:
        """Return why the network does not support the game of ``board``.

        The result is "" if the network supports the game.
        """
        trained, living = self.metadata["trained_for"], len(board.living)
        if board.game.ruleset not in trained["rulesets"]:
            return f"trained for {', '.join(trained['rulesets'])}, not {board.game.ruleset}"
        if board.game.map and board.game.map not in trained["maps"]:
            return f"trained for the map {', '.join(trained['maps'])}, not {board.game.map}"
        if not self._supports_size(board):
            sizes = ", ".join(f"{width}x{height}" for width, height in trained["sizes"])
            return f"trained for boards of {sizes}, not {board.width}x{board.height}"
        if living > max(trained["snakes"]):
            return f"trained for up to {max(trained['snakes'])} snakes, not {living}"
        return "trained for two or more snakes" if living < 2 else ""

    def _supports_size(self, board: Board) -> bool:
        """Return whether the network supports the board size.

        The inputs are relative to the number of cells, so boards between the smallest and the
        largest size of the training are supported, too. With limited view, the network is not
        stronger than the handcrafted weights on these boards.
        """
        sizes: list[list[int]] = self.metadata["trained_for"]["sizes"]
        if [board.width, board.height] in sizes or board.game.settings.view_radius is not None:
            return [board.width, board.height] in sizes
        widths, heights = [width for width, _ in sizes], [height for _, height in sizes]
        fits = min(widths) <= board.width <= max(widths)
        return fits and min(heights) <= board.height <= max(heights)


@functools.cache
def load_builtin() -> Evaluation:
    """Load the built-in evaluation once per process."""
    return Evaluation.load(BUILTIN_PATH)


def score_to_probability(score: float) -> float:
    """Convert a search score, in cells of territory, to an expected score in [0, 1]."""
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, score * _LOGIT_PER_CELL))))


def probability_to_score(probability: float) -> float:
    """Convert an expected score in [0, 1] to a search score, in cells of territory.

    >>> round(probability_to_score(score_to_probability(12.5)), 6)
    12.5
    """
    bounded = max(1e-9, min(1 - 1e-9, probability))
    return math.log(bounded / (1 - bounded)) / _LOGIT_PER_CELL


def _parse_shape(shape: Mapping[str, Any]) -> tuple[list[int], int, int]:
    """Parse the shape of a network file.

    Returns:
        The network index of each input of the file, and the sizes of the two hidden layers.

    Raises:
        KeyError: If a field is missing.
        TypeError: If a field has the wrong type.
        ValueError: If the shape is not supported.
    """
    board, snake = (
        {name: k for k, name in enumerate(group)} for group in (BOARD_INPUTS, SNAKE_INPUTS)
    )
    places = [board[name] for name in shape["board"]]
    for start in range(len(BOARD_INPUTS), NUM_INPUTS, len(SNAKE_INPUTS)):
        places += [start + snake[name] for name in shape["snake"]]
    hidden, second = shape["hidden"]
    if len(set(places)) < len(places) or len(places) % 2:
        raise ValueError(
            "shape: the inputs must be distinct, and the number of inputs must be even"
        )
    for name, size, most in (("first", hidden, HIDDEN1), ("second", second, HIDDEN2)):
        if type(size) is not int or not 2 <= size <= most or size % 2:
            raise ValueError(
                f"shape.hidden: the {name} size must be even, 2 to {most}, got {size!r}"
            )
    return places, hidden, second


def _pad_network(numbers: bytes, places: Sequence[int], hidden: int, second: int) -> bytes:
    """Pad the weight stacks of a file to the full shape with zero weights."""
    narrow = memoryview(numbers).cast("h")
    wide = memoryview(bytearray(_NUM_NETWORK_BYTES)).cast("h")
    at = to = 0  # Both offsets are in 16-bit words.
    for _ in range(STACKS):
        for rows, columns, most_rows, most_columns in (
            (places, hidden, NUM_INPUTS, HIDDEN1),
            (range(hidden), second, HIDDEN1, HIDDEN2),
        ):
            for row, place in enumerate(rows):  # Weights of two inputs are interleaved.
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


def _check_trained_for(trained: Mapping[str, Any]) -> None:
    """Raise ValueError if a list of the supported games is missing, empty or of a wrong type."""
    for name, kind in (("rulesets", str), ("maps", str), ("sizes", list), ("snakes", int)):
        items = trained[name]
        if not isinstance(items, list) or {type(item) for item in items} != {kind}:
            raise ValueError(f"trained_for.{name} must be a list of at least one {kind.__name__}")
    for size in trained["sizes"]:
        if len(size) != 2 or not all(type(side) is int for side in size):
            raise ValueError(f"trained_for.sizes must contain pairs of integers, got {size}")
