"""Map ``hz_spiral``, which adds a hazard every third turn.

The hazard is on the next cell of a spiral.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..food import game_rand, standard_food
from ..state import Game, Point, State
from .base import Map
from .standard import setup

_SPAWN_INTERVAL_TURNS = 3


def _spiral_cells(center: Point, rings: int) -> Iterator[Point]:
    """Yield a clockwise spiral around ``center``, including cells off the board.

    Each ring of the spiral starts beside its upper left corner and ends in the corner.
    """
    for radius in range(1, rings + 1):
        x, y = center[0] - radius, center[1] + radius
        for dx, dy in ((1, 0), (0, -1), (-1, 0), (0, 1)):
            for _ in range(2 * radius):
                x, y = x + dx, y + dy
                yield x, y


def _update(game: Game, state: State) -> None:
    """Place the standard food, and then a hazard on the next spiral cell.

    A spiral cell off the board gets no hazard.
    """
    standard_food(game, state)
    turn = state.turn + 1
    if turn < _SPAWN_INTERVAL_TURNS or turn % _SPAWN_INTERVAL_TURNS:
        return
    rand = game_rand(game)
    width, height = state.width, state.height
    margin_x, margin_y = width * 3 // 10, height * 3 // 10
    x = rand.between(margin_x, width - 1 - margin_x)
    y = rand.between(margin_y, height - 1 - margin_y)
    spiral = [(x, y), *_spiral_cells((x, y), max(x, y, width - x, height - y))]
    index = turn // _SPAWN_INTERVAL_TURNS - 1
    if index < len(spiral):
        x, y = spiral[index]
        if 0 <= x < width and 0 <= y < height:
            state.hazards.append((x, y))


SPIRAL = Map("hz_spiral", "a spiral from a random center", setup, _update)
