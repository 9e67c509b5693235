"""Limits of recorded games, which bound the time and memory for reading.

All limits far exceed the needs of real games. To read a larger file that you trust, first raise the
limit that the error message names, for example ``limits.MAX_REPLAY_TURNS = 200_000``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board_json import MAX_READABLE_BOARD_SIZE
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.rules.state import State

MAX_REPLAY_BYTES = 32 << 20
"""Maximum file size in bytes, compressed and decompressed.

A file with 2,000 turns and reasons has about 4 MB.
"""

MAX_LINE_BYTES = 1 << 20
"""Maximum size of a line (one turn) in bytes.

The largest readable board needs a fifth of this size.
"""

MAX_JSON_VALUES = 3_000_000
"""Maximum number of JSON values in a file.

Each value needs about 100 bytes of memory.
"""

MAX_REPLAY_TURNS = 50_000
MAX_REPLAY_SNAKES = 64

MAX_TOTAL_CELLS = 8_000_000
"""Maximum number of cells of boards, bodies, food and hazards, over all turns.

Each snake counts as 20 additional cells, because the rules examine each snake several times per
turn.
"""

_SNAKE_CELL_COST = 20

MAX_COORDINATE = 1_000
"""Maximum absolute value of coordinates.

Some maps store data in cells slightly off the board.
"""

MAX_NUMBER = 1_000_000
"""Maximum of the first turn, the health and the settings.

The time of some maps is proportional to these numbers.
"""


def check_limit(value: int, limit: str, problem: str) -> None:
    """Raise `BoardError` with the description ``problem`` if ``value`` exceeds a limit.

    Args:
        value: Number to check.
        limit: Name of a constant of this module.
        problem: Description of the value.
    """
    if value > (maximum := globals()[limit]):
        raise BoardError(
            f"{problem}; the limit is {maximum} (battlesnake_gym.replays.limits.{limit})"
        )


def read_number(parent: Mapping[str, Any], key: str, path: str) -> int:
    """Return the integer under ``key`` of the object at the JSON path ``path``.

    Raises:
        BoardError: If the absolute value exceeds `MAX_NUMBER`.
    """
    return json_fields.bounded_integer(parent, key, path, -MAX_NUMBER, MAX_NUMBER)


def read_size(parent: Mapping[str, Any], path: str) -> tuple[int, int]:
    """Return the integers under ``width`` and ``height``.

    Raises:
        BoardError: If a side is less than 1 or exceeds `MAX_READABLE_BOARD_SIZE`.
    """
    width, height = (
        json_fields.bounded_integer(parent, key, path, 1, MAX_READABLE_BOARD_SIZE)
        for key in ("width", "height")
    )
    return width, height


def check_position(state: State) -> int:
    """Check the number of snakes, and return the result of `_count_cells`.

    Raises:
        BoardError: If the position has too many snakes.
    """
    count = len(state.snakes)
    check_limit(count, "MAX_REPLAY_SNAKES", f"there are {count} snakes")
    return _count_cells(state)


def _count_cells(state: State) -> int:
    """Return the number of cells that a position counts as."""
    bodies = sum(len(snake.body) for snake in state.snakes)
    board_cells = state.width * state.height + len(state.food) + len(state.hazards)
    return board_cells + bodies + _SNAKE_CELL_COST * len(state.snakes)


class SizeMeter:
    """Counter of turns and cells while a game is read or recorded."""

    def __init__(self) -> None:
        self._turns = -1
        self._cells = 0

    def count(self, state: State) -> None:
        """Count a position, and check the limits.

        The first position does not count as a turn.

        Raises:
            BoardError: If a limit is exceeded.
        """
        check_position(state)
        self.add(state)
        self.check()

    def add(self, state: State) -> None:
        """Count a position without checking the limits."""
        self._turns += 1
        self._cells += _count_cells(state)

    def check(self) -> None:
        """Check the number of turns and cells so far.

        Raises:
            BoardError: If a limit is exceeded.
        """
        turns = f"the game has more than {MAX_REPLAY_TURNS} turns"
        check_limit(self._turns, "MAX_REPLAY_TURNS", turns)
        cells = f"the game has more than {MAX_TOTAL_CELLS} cells in its {self._turns} turns"
        check_limit(self._cells, "MAX_TOTAL_CELLS", cells)
