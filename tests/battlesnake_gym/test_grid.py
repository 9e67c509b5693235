import itertools
import random
from collections.abc import Iterator

import pytest

from battlesnake_gym.boards.grid import Grid, grid
from battlesnake_gym.rules import Point
from battlesnake_gym.rules.state import MOVES, OFFSETS

SHAPES = [
    Grid(*size, wrapped)
    for size in [(1, 1), (1, 4), (4, 1), (2, 3), (5, 5), (11, 7), (25, 25)]
    for wrapped in (False, True)
]


def cells_of(shape: Grid, cells: int) -> set[Point]:
    every = itertools.product(range(shape.width), range(shape.height))
    return {cell for cell in every if shape.bit(cell) & cells}


def neighbors(shape: Grid, cell: Point) -> Iterator[Point]:
    for dx, dy in OFFSETS.values():
        x, y = cell[0] + dx, cell[1] + dy
        if shape.wrapped:
            yield x % shape.width, y % shape.height
        elif 0 <= x < shape.width and 0 <= y < shape.height:
            yield x, y


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_spread_adds_exactly_the_neighbors(shape: Grid) -> None:
    draw = random.Random(1)
    every = list(itertools.product(range(shape.width), range(shape.height)))
    for _ in range(20):
        chosen = draw.sample(every, draw.randint(1, min(6, len(every))))
        expected = {near for cell in chosen for near in neighbors(shape, cell)}
        assert cells_of(shape, shape.spread(shape.bits(chosen))) == expected


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_step_and_distance_agree_with_flood_fill(shape: Grid) -> None:
    start = (shape.width // 2, shape.height - 1)
    steps = {shape.step(start, move) for move in MOVES}
    assert steps - {None} == set(neighbors(shape, start))
    reached, turns = shape.bit(start), 0
    while reached != shape.everything:
        for cell in cells_of(shape, reached):
            assert shape.distance(start, cell) <= turns
        grown = reached | shape.spread(reached)
        turns += 1
        assert all(
            shape.distance(start, cell) == turns for cell in cells_of(shape, grown & ~reached)
        )
        reached = grown


def test_cells_off_the_board_are_ignored() -> None:
    shape = grid(3, 3)
    assert shape.bit((3, 0)) == shape.bit((0, -1)) == shape.bit(None) == 0
    assert shape.bits([(0, 0), (9, 9)]) == 1
    assert grid(3, 3) is shape
