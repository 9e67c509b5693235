"""River and island maps, whose hazards are a cross of water with bridges.

All lists of cells have the order of the official engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..food import game_rand, standard_food
from ..placement import place_food_beside, place_in_quadrants
from ..state import Game, Point, State
from .base import Map, MapFunction


def _parse_cells(text: str) -> list[Point]:
    """Parse a list of cells such as ``3,1 1,3``."""
    return [(int(x), int(y)) for x, y in (pair.split(",") for pair in text.split())]


RIVERS = _parse_cells(
    """
    5,10 5,9 5,7 5,6 5,5 5,4 5,3 5,0 5,1 6,5 7,5 9,5 10,5 4,5 3,5 1,5 0,5
    """
)

RIVERS_LARGE = _parse_cells(
    """
    9,0 9,1 9,2 9,5 9,6 9,7 9,9 9,8 9,10 9,12 9,11 9,13 9,14 9,16 9,17 9,18 0,9 2,9 1,9 3,9 5,9
    6,9 7,9 8,9 10,9 13,9 12,9 11,9 15,9 16,9 17,9 18,9 9,4 8,10 8,8 10,8 10,10
    """
)

RIVERS_EXTRA_LARGE = _parse_cells(
    """
    12,24 12,21 12,20 12,19 12,18 12,15 12,14 12,13 12,12 12,11 12,10 12,9 12,5 12,4 12,3 12,0
    0,12 3,12 4,12 5,12 6,12 9,12 10,12 11,12 13,12 14,12 15,12 18,12 20,12 19,12 21,12 24,12
    11,14 10,13 11,13 10,11 11,11 11,10 13,10 14,11 13,11 13,13 14,13 13,14 12,6 12,2 2,12 22,12
    12,22 16,12 12,8 8,12 12,16
    """
)

ISLANDS = RIVERS + _parse_cells(
    """
    1,10 9,10 1,0 9,0 10,1 10,0 10,10 10,9 0,10 0,9 0,1 0,0 0,6 0,4 10,6 10,4 6,10 4,10 6,0 4,0
    """
)

ISLANDS_LARGE = _parse_cells(
    """
    9,18 9,0 9,1 9,2 9,3 9,5 9,6 9,8 9,7 9,9 9,10 9,11 9,12 9,13 9,15 9,16 9,17 2,9 1,9 0,9 3,9
    5,9 6,9 7,9 8,9 10,9 16,9 15,9 13,9 12,9 11,9 17,9 18,9 10,8 8,8 8,10 10,10 18,8 18,7 18,6
    18,10 18,11 18,12 0,10 0,11 0,12 0,8 0,7 0,6 6,0 7,0 8,0 10,0 11,0 12,0 10,18 11,18 12,18
    8,18 7,18 6,18 0,18 0,17 0,16 0,15 1,18 2,18 3,18 1,17 15,18 16,18 17,18 18,18 18,17 18,16
    18,15 17,17 18,3 18,2 18,1 18,0 17,0 16,0 15,0 17,1 0,0 1,0 2,0 3,0 0,1 0,2 0,3 1,1 10,1 8,1
    8,17 10,17 17,10 17,8 1,8 1,10
    """
)

RIVERS_STARTS = [
    _parse_cells("1,1 3,3"),
    _parse_cells("9,9 7,7"),
    _parse_cells("1,9 3,9"),
    _parse_cells("9,1 7,3"),
]
RIVERS_LARGE_STARTS = [
    _parse_cells("1,1 5,1 1,5 5,5"),
    _parse_cells("17,1 17,5 13,5 13,1"),
    _parse_cells("1,17 5,17 1,13 5,13"),
    _parse_cells("17,17 17,13 13,17 13,13"),
]
RIVERS_EXTRA_LARGE_STARTS = [
    _parse_cells("1,1 9,9 9,1 1,9"),
    _parse_cells("23,23 15,15 23,15 15,23"),
    _parse_cells("15,1 15,9 23,9 23,1"),
    _parse_cells("9,23 1,23 9,15 1,15"),
]
ISLANDS_STARTS = [
    _parse_cells("3,1 1,3"),
    _parse_cells("9,7 7,9"),
    _parse_cells("3,9 1,7"),
    _parse_cells("7,1 9,3"),
]
ISLANDS_LARGE_STARTS = [
    _parse_cells("2,2 2,6 6,2 6,6"),
    _parse_cells("12,2 16,2 16,6 12,6"),
    _parse_cells("16,16 16,12 12,12 12,16"),
    _parse_cells("2,16 6,16 6,12 2,12"),
]


def _create_setup(hazards: Sequence[Point], quadrants: Sequence[Sequence[Point]]) -> MapFunction:
    """Create a setup function that places hazards, snakes in quadrants, and food."""

    def setup(game: Game, state: State) -> None:
        rand = game_rand(game)
        place_in_quadrants(state, rand, quadrants)
        state.hazards = list(hazards)
        taken = set(hazards).union(*(snake.body for snake in state.snakes))
        place_food_beside(state, rand, taken)

    return setup


def update(game: Game, state: State) -> None:
    """Place the standard food on cells without hazards."""
    standard_food(game, state, avoid_hazards=True)


def _create_map(map_id: str, size: int, most: int, hook: MapFunction) -> Map:
    kind = "islands" if "islands" in map_id else "rivers"
    return Map(
        map_id,
        f"{kind} with bridges on a board of {size}x{size}",
        hook,
        update,
        sizes=((size, size),),
        players=(1, most),
        sizes_enforced=True,
        players_enforced=True,
    )


RIVERS_AND_ISLANDS = (
    _create_map("hz_rivers_bridges", 11, 8, _create_setup(RIVERS, RIVERS_STARTS)),
    _create_map("hz_rivers_bridges_lg", 19, 12, _create_setup(RIVERS_LARGE, RIVERS_LARGE_STARTS)),
    _create_map(
        "hz_rivers_bridges_xl", 25, 12, _create_setup(RIVERS_EXTRA_LARGE, RIVERS_EXTRA_LARGE_STARTS)
    ),
    _create_map("hz_islands_bridges", 11, 4, _create_setup(ISLANDS, ISLANDS_STARTS)),
    _create_map(
        "hz_islands_bridges_lg", 19, 16, _create_setup(ISLANDS_LARGE, ISLANDS_LARGE_STARTS)
    ),
)
