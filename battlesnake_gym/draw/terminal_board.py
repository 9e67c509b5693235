"""Board drawings for terminals, in a more readable form than the text format.

`boards.board_text` describes the text format.

A capital letter is a snake's head and lowercase letters are its body. ``*`` is food and ``.`` is an
empty cell. ``~`` after a cell is a hazard; a digit is the number of hazard layers.
"""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from battlesnake_gym.common.command_line import colorize
from battlesnake_gym.rules.state import Snake, State

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLORS = ("green", "blue", "yellow", "red", "dim")


def picture(board: State, out: TextIO) -> str:
    """Return the board and one line per snake, in color if ``out`` supports colors."""
    cells = {food: colorize("*", "red", out) for food in board.food}
    for i, snake in reversed(list(enumerate(board.snakes))):
        if snake.alive:
            for cell in snake.body[1:]:
                cells[cell] = colorize(_letter(i).lower(), _color(i), out)
            cells[snake.head] = colorize(_letter(i), _color(i), out)
    layers = Counter(board.hazards)
    rows = (
        "".join(
            cells.get((x, y), colorize(".", "dim", out)) + _hazard(layers[x, y])
            for x in range(board.width)
        )
        for y in reversed(range(board.height))
    )
    return "\n".join(row.rstrip() for row in rows) + "\n" + _snake_list(board.snakes, out)


def _snake_list(snakes: list[Snake], out: TextIO) -> str:
    return "".join(
        f"{colorize(_letter(i), _color(i), out)} {snake.name or snake.id}: {_state(snake)}\n"
        for i, snake in enumerate(snakes)
    )


def _state(snake: Snake) -> str:
    if not snake.alive:
        return f"eliminated on turn {snake.eliminated_on}, {snake.eliminated_cause}"
    return f"length {snake.length}, health {snake.health}"


def _hazard(num_layers: int) -> str:
    if not num_layers:
        return " "
    return "~" if num_layers == 1 else str(min(num_layers, 9))


def _letter(index: int) -> str:
    return _LETTERS[index % len(_LETTERS)]


def _color(index: int) -> str:
    return _COLORS[index % len(_COLORS)]
