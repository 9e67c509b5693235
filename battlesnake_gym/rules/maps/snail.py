"""The map ``snail_mode``: tails leave a trail of stacked hazards that fades layer by layer."""

from __future__ import annotations

from collections import Counter

from ..food import standard_food
from ..stages import living
from ..state import Game, Point, State
from .base import Map
from .standard import setup


def update(game: Game, state: State) -> None:
    """Standard food; trails fade, new ones are laid, and those of the turn before appear."""
    standard_food(game, state)
    state.hazards = trails(state)


def trails(state: State) -> list[Point]:
    """The hazards after a turn: ``state`` has the snakes after it and the hazards before it."""
    height = state.height
    hazards: list[Point] = []
    for (x, y), layers in Counter(state.hazards).items():
        if y < height:
            hazards += [(x, y)] * (layers - 1)
    hazards += waiting(state)
    heads = {snake.head for snake in living(state)}
    laid = [(x, y - height) for x, y in state.hazards if y >= height]
    return hazards + [cell for cell in laid if cell not in heads]


def waiting(state: State) -> list[Point]:
    """The trails that this turn lays: they wait above the board, at ``y + height``, for the next.

    Snakes can see them there, except on platforms that show what is on the board alone.
    """
    cells: list[Point] = []
    for snake in living(state):
        x, y = snake.body[-1]
        if snake.body[-2:] != [(x, y), (x, y)]:
            cells += [(x, y + state.height)] * snake.length
    return cells


SNAIL_MODE = Map("snail_mode", "fading trails behind the tails", setup, update)
