"""Map ``hz_spiral``, which adds the next cell of a random spiral every third turn."""

from __future__ import annotations

from collections.abc import Iterator

from ..food import game_rand, standard_food
from ..state import Game, Point, State
from .base import Map
from .standard import setup

_EVERY = 3


def walk(center: Point, rings: int) -> Iterator[Point]:
    """Yield a clockwise spiral around ``center``, including cells off the board.

    Each ring starts to the right of its upper left corner and ends in that corner.
    """
    for radius in range(1, rings + 1):
        x, y = center[0] - radius, center[1] + radius
        for dx, dy in ((1, 0), (0, -1), (-1, 0), (0, 1)):
            for _ in range(2 * radius):
                x, y = x + dx, y + dy
                yield x, y


def update(game: Game, state: State) -> None:
    """Place the standard food, and then this turn's cell if it is on the board."""
    standard_food(game, state)
    turn = state.turn + 1
    if turn < _EVERY or turn % _EVERY:
        return
    rand = game_rand(game)
    width, height = state.width, state.height
    margin_x, margin_y = width * 3 // 10, height * 3 // 10
    x = rand.between(margin_x, width - 1 - margin_x)
    y = rand.between(margin_y, height - 1 - margin_y)
    spiral = [(x, y), *walk((x, y), max(x, y, width - x, height - y))]
    index = turn // _EVERY - 1
    if index < len(spiral):
        x, y = spiral[index]
        if 0 <= x < width and 0 <= y < height:
            state.hazards.append((x, y))


SPIRAL = Map("hz_spiral", "a spiral from a random center", setup, update)
