"""A board for people to look at in a terminal: quicker to take in than the text that tests read.

A capital letter is a snake's head and small ones are its body, ``*`` is food and ``.`` an empty
cell; a ``~`` behind it is a hazard, a digit a stack of that many.
"""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from battlesnake_gym.common.command_line import colorize
from battlesnake_gym.rules.state import Snake, State

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLOURS = ("green", "blue", "yellow", "red", "dim")


def picture(board: State, out: TextIO) -> str:
    """The board, top row first, and a line for each snake; in colours if ``out`` shows them."""
    cells = {food: colorize("*", "red", out) for food in board.food}
    for i, snake in reversed(list(enumerate(board.snakes))):
        if snake.alive:
            for cell in snake.body[1:]:
                cells[cell] = colorize(_letter(i).lower(), _colour(i), out)
            cells[snake.head] = colorize(_letter(i), _colour(i), out)
    depths = Counter(board.hazards)
    rows = (
        "".join(
            cells.get((x, y), colorize(".", "dim", out)) + _hazard(depths[x, y])
            for x in range(board.width)
        )
        for y in reversed(range(board.height))
    )
    return "\n".join(row.rstrip() for row in rows) + "\n" + _list(board.snakes, out)


def _list(snakes: list[Snake], out: TextIO) -> str:
    return "".join(
        f"{colorize(_letter(i), _colour(i), out)} {snake.name or snake.id}: {_state(snake)}\n"
        for i, snake in enumerate(snakes)
    )


def _state(snake: Snake) -> str:
    if not snake.alive:
        return f"out on turn {snake.eliminated_on}, {snake.eliminated_cause}"
    return f"length {snake.length}, health {snake.health}"


def _hazard(depth: int) -> str:
    if not depth:
        return " "
    return "~" if depth == 1 else str(min(depth, 9))


def _letter(number: int) -> str:
    return _LETTERS[number % len(_LETTERS)]


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
