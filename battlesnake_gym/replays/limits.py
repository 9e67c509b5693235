"""Limits of a recorded game, so that reading any file takes bounded memory and time.

All are far above what games need. To read a larger one of your own, first raise the number that the
error names: ``limits.MOST_TURNS = 200_000``.
"""

from __future__ import annotations

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board_json import MAX_READABLE_BOARD_SIZE
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.rules.state import State

MAX_REPLAY_BYTES = 32 << 20
"""Bytes of a file, as it lies there and unpacked; a game of 2,000 turns with reasons has 4 MB."""

MAX_LINE_BYTES = 1 << 20
"""Bytes of one line, which is one turn; the largest board that is drawn needs a fifth of it."""

MAX_JSON_VALUES = 3_000_000
"""Numbers, texts, lists and objects in a file; each takes some 100 bytes once it is read."""

_MAX_REPLAY_TURNS = 50_000
_MAX_REPLAY_SNAKES = 64

_MAX_TOTAL_CELLS = 8_000_000
"""The cells of the board, of bodies, of food and of hazards, summed over all turns. A snake counts
for `SNAKE` more: the rules look at each of them several times a turn."""

_SNAKE_CELL_COST = 20

MAX_COORDINATE = 1_000
"""How far from the board's corner a cell may lie; the marks of maps lie just beside it."""

_MAX_NUMBER = 1_000_000
"""Of the first turn, of health and of settings: some maps count up to them."""


def too_large(what: str, limit: str, most: int) -> BoardError:
    """The error for what exceeds the limit with this name."""
    return BoardError(f"{what}; at most {most} are read (battlesnake_gym.replays.limits.{limit})")


def check_number(value: int, path: str) -> int:
    """The number at a JSON path; raises `BoardError` where it is larger than any game has."""
    if abs(value) > _MAX_NUMBER:
        got = json_fields.format_value(value)
        raise BoardError(f"{path} must be between -{_MAX_NUMBER} and {_MAX_NUMBER}, got {got}")
    return value


def check_start(state: State) -> None:
    """Raise `BoardError` where the first position of a game is not one of bounded size."""
    for name, side in (("width", state.width), ("height", state.height)):
        if not 1 <= side <= MAX_READABLE_BOARD_SIZE:
            raise BoardError(
                f"first.{name} must be between 1 and {MAX_READABLE_BOARD_SIZE}, got {side:.6g}"
            )
    if not 0 <= state.turn <= _MAX_NUMBER:
        raise BoardError(f"first.turn must be between 0 and {_MAX_NUMBER}, got {state.turn:.6g}")


def check_position(state: State) -> int:
    """How many cells a position counts for; raises `BoardError` where it has too many snakes."""
    if len(state.snakes) > _MAX_REPLAY_SNAKES:
        raise too_large(f"there are {len(state.snakes)} snakes", "MOST_SNAKES", _MAX_REPLAY_SNAKES)
    return cells_of(state)


def cells_of(state: State) -> int:
    """How many cells a position counts for."""
    bodies = sum(len(snake.body) for snake in state.snakes)
    ground = state.width * state.height + len(state.food) + len(state.hazards)
    return ground + bodies + _SNAKE_CELL_COST * len(state.snakes)


class SizeMeter:
    """Counts the turns of a game and their cells while it is read, or recorded."""

    def __init__(self) -> None:
        self._turns = -1
        self._cells = 0

    def count(self, state: State) -> None:
        """Count a position, the first one included; raises `BoardError` where it is too much."""
        check_position(state)
        self.note(state)
        self.check()

    def note(self, state: State) -> None:
        """Count a position, however much it is."""
        self._turns += 1
        self._cells += cells_of(state)

    def check(self) -> None:
        """Raise `BoardError` where what was counted is too much."""
        if self._turns > _MAX_REPLAY_TURNS:
            raise too_large(
                f"the game has more than {_MAX_REPLAY_TURNS} turns", "MOST_TURNS", _MAX_REPLAY_TURNS
            )
        if self._cells > _MAX_TOTAL_CELLS:
            raise too_large(
                f"the game has more than {_MAX_TOTAL_CELLS} cells in its {self._turns} turns",
                "MOST_CELLS",
                _MAX_TOTAL_CELLS,
            )
