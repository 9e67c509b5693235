"""Colored board drawings for terminals.

The module `boards.board_text` writes the text format, which programs can parse.

A capital letter is a snake's head, and the same letter in lower case is a body segment. ``*`` is
food and ``.`` is an empty cell. After a cell, ``~`` marks one hazard layer, and a digit is the
number of hazard layers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TextIO

from battlesnake_gym.common.command_line import colorize
from battlesnake_gym.rules.state import Snake, State

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SNAKE_COLORS = ("green", "blue", "yellow", "red", "dim")


def render_board(board: State, out: TextIO) -> str:
    """Return a drawing of the board, followed by one line per snake.

    The drawing is colored if ``out`` supports colors.
    """
    cells = {food: colorize("*", "red", out) for food in board.food}
    styles = zip(itertools.cycle(_LETTERS), itertools.cycle(_SNAKE_COLORS), strict=True)
    marks = [(snake, *style) for snake, style in zip(board.snakes, styles, strict=False)]
    for snake, letter, color in reversed(marks):
        if snake.alive:
            cells |= dict.fromkeys(snake.body[1:], colorize(letter.lower(), color, out))
            cells[snake.head] = colorize(letter, color, out)
    layers = Counter(board.hazards)
    rows = (
        "".join(
            cells.get((x, y), colorize(".", "dim", out)) + _hazard_mark(layers[x, y])
            for x in range(board.width)
        )
        for y in reversed(range(board.height))
    )
    snakes = (
        f"{colorize(letter, color, out)} {snake.name or snake.id}: {_describe_snake(board, snake)}"
        for snake, letter, color in marks
    )
    return "\n".join([*(row.rstrip() for row in rows), *snakes, ""])


def _describe_snake(board: State, snake: Snake) -> str:
    if not snake.alive:
        return f"eliminated on turn {snake.eliminated_on}, {snake.eliminated_cause}"
    if not snake.health:  # The snake is seen with a limited view.
        return f"visible segments: {sum(map(board.inside, snake.body))}"
    return f"length {snake.length}, health {snake.health}"


def _hazard_mark(num_layers: int) -> str:
    if not num_layers:
        return " "
    return "~" if num_layers == 1 else str(min(num_layers, 9))
