"""Maps with constant hazards: an inner wall, concentric rings, or columns."""

from __future__ import annotations

from ..food import standard_food
from ..state import Game, Point, RulesError, State
from . import standard
from .base import Map


def _ring_cells(width: int, height: int, number: int) -> list[Point]:
    """List a rectangular ring of cells around the center of the board.

    The ring leaves ``number - 1`` free cells on each side of the board.

    Raises:
        RulesError: If the board is too small.
    """
    if number >= min(width, height) - 1:
        raise RulesError(
            f"a board of {width}x{height} has no room for ring {number} of this map: "
            f"use a board of {number + 2}x{number + 2} or more"
        )
    left, right = number - 1, width - number
    bottom, top = number - 1, height - number
    columns = [(x, y) for x in range(left, right + 1) for y in (bottom, top)]
    return columns + [(x, y) for y in range(bottom + 1, top) for x in (left, right)]


def _setup_inner_wall(game: Game, state: State) -> None:
    """Create the standard start position and one ring of hazards.

    The ring is one cell away from the border.
    """
    standard.setup(game, state)
    state.hazards = _ring_cells(state.width, state.height, 2)


def _setup_rings(game: Game, state: State) -> None:
    """Create the standard start position and hazards on every second ring."""
    standard.setup(game, state)
    for number in range(2, state.width // 2, 2):
        state.hazards += _ring_cells(state.width, state.height, number)


def _setup_columns(game: Game, state: State) -> None:
    """Create the standard start position and hazards on cells with odd x and odd y."""
    standard.setup(game, state)
    state.hazards = [(x, y) for x in range(1, state.width, 2) for y in range(1, state.height, 2)]


INNER_WALL = Map("hz_inner_wall", "a ring one cell from the edge", _setup_inner_wall, standard_food)
RINGS = Map("hz_rings", "concentric rings", _setup_rings, standard_food)
SINGLE_COLUMNS = Map("hz_columns", "single columns", _setup_columns, standard_food)
