"""Map ``snail_mode``, on which tails leave trails of fading hazard layers."""

from __future__ import annotations

from collections import Counter

from ..food import standard_food
from ..state import Game, Point, State
from .base import Map
from .standard import setup


def _update(game: Game, state: State) -> None:
    """Place the standard food and update the trails.

    Existing trails fade. Pending trails are added, and new pending trails are stored.
    """
    standard_food(game, state)
    state.hazards = trails(state)


def trails(state: State) -> list[Point]:
    """List the hazards after a turn: fading trails, new trails and pending trails.

    Args:
        state: State with the snakes after the turn and the hazards before the turn.
    """
    height = state.height
    hazards: list[Point] = []
    for (x, y), layers in Counter(state.hazards).items():
        if y < height:
            hazards += [(x, y)] * (layers - 1)
    hazards += pending_trails(state)
    heads = {snake.head for snake in state.living}
    laid = [(x, y - height) for x, y in state.hazards if y >= height]
    return hazards + [cell for cell in laid if cell not in heads]


def pending_trails(state: State) -> list[Point]:
    """List the pending trails that this turn adds.

    Pending trails are stored off the board, at ``y + height``, until the next turn. Requests to
    snakes include pending trails, except requests from platforms that send only the cells on the
    board.
    """
    cells: list[Point] = []
    for snake in state.living:
        x, y = snake.body[-1]
        if snake.body[-2:] != [(x, y), (x, y)]:
            cells += [(x, y + state.height)] * snake.length
    return cells


SNAIL_MODE = Map("snail_mode", "fading trails behind the tails", setup, _update)
