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


def limit_error(problem: str, limit: str, maximum: int) -> BoardError:
    """Return the error for a value that exceeds a limit."""
    return BoardError(f"{problem}; the limit is {maximum} (battlesnake_gym.replays.limits.{limit})")


def read_number(parent: Mapping[str, Any], key: str, path: str) -> int:
    """Return the integer under ``key`` of the object at the JSON path ``path``.

    Raises:
        BoardError: If the absolute value exceeds `MAX_NUMBER`.
    """
    return json_fields.bounded_integer(parent, key, path, -MAX_NUMBER, MAX_NUMBER)


def check_start(state: State) -> None:
    """Check the size and turn of the first position of a game.

    Raises:
        BoardError: If the size or the turn is out of range.
    """
    sizes = {"width": state.width, "height": state.height}
    for name in sizes:
        json_fields.bounded_integer(sizes, name, "first", 1, MAX_READABLE_BOARD_SIZE)
    json_fields.bounded_integer({"turn": state.turn}, "turn", "first", 0, MAX_NUMBER)


def check_position(state: State) -> int:
    """Check the number of snakes, and return the result of `_count_cells`.

    Raises:
        BoardError: If the position has too many snakes.
    """
    if len(state.snakes) > MAX_REPLAY_SNAKES:
        raise limit_error(
            f"there are {len(state.snakes)} snakes", "MAX_REPLAY_SNAKES", MAX_REPLAY_SNAKES
        )
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
        if self._turns > MAX_REPLAY_TURNS:
            raise limit_error(
                f"the game has more than {MAX_REPLAY_TURNS} turns",
                "MAX_REPLAY_TURNS",
                MAX_REPLAY_TURNS,
            )
        if self._cells > MAX_TOTAL_CELLS:
            raise limit_error(
                f"the game has more than {MAX_TOTAL_CELLS} cells in its {self._turns} turns",
                "MAX_TOTAL_CELLS",
                MAX_TOTAL_CELLS,
            )
