"""The map ``snail_mode``: tails leave a trail of stacked hazards that fades layer by layer."""

from __future__ import annotations

from collections import Counter

from ..food import standard_food
from ..stages import living
from ..state import Game, Point, State
from .base import Map
from .standard import setup


def update(game: Game, state: State) -> None:
    """Standard food; trails fade, new ones are laid, and those of the turn before appear.

    A new trail waits for one turn above the board, at ``y + height``, which snakes can see too.
    """
    standard_food(game, state)
    height = state.height
    hazards: list[Point] = []
    for (x, y), layers in Counter(state.hazards).items():
        if y < height:
            hazards += [(x, y)] * (layers - 1)
    for snake in living(state):
        x, y = snake.body[-1]
        if snake.body[-2:] != [(x, y), (x, y)]:
            hazards += [(x, y + height)] * snake.length
    heads = {snake.head for snake in living(state)}
    waiting = [(x, y - height) for x, y in state.hazards if y >= height]
    hazards += [cell for cell in waiting if cell not in heads]
    state.hazards = hazards


SNAIL_MODE = Map("snail_mode", "fading trails behind the tails", setup, update)
