"""Castle maps, which have thick walls with gates, and food only in the gates."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ..food import game_rand, neighbors
from ..placement import put_snakes
from ..state import Game, Point, State
from .base import Map

_FIRST_FOOD_TURN = 10
CANDIDATES_KEY = "castle_candidates"
"""Key in `State.memory` of the gate cells, in the order of the last shuffle."""


@dataclass(frozen=True, slots=True)
class _Castle:
    """Layout of the castle for one board size.

    Attributes:
        layers: Distances of the wall cells from the border, in cells.
        gates: Coordinates along a side at which the wall is open.
        starts: Groups of start cells; a group is used if the previous groups have too few cells.
        max_food: Maximum number of food cells on the board.
    """

    size: int
    layers: tuple[int, ...]
    gates: tuple[int, ...]
    starts: tuple[tuple[Point, ...], ...]
    max_food: int = 2

    def start_cells(self, num_snakes: int) -> list[Point]:
        """List the start cells of the groups that ``num_snakes`` snakes need."""
        cells: list[Point] = []
        for group in self.starts:
            if len(cells) < num_snakes or not cells:
                cells += group
        return cells

    def gate_cells(self) -> list[Point]:
        """List the cells of the gates, ordered by x, then by y."""
        return [(x, y) for x, y in self._wall_cells() if x in self.gates or y in self.gates]

    def hazards(self) -> list[Point]:
        """List the wall cells in the official order.

        Cells next to a gate are listed twice.
        """
        gates = set(self.gate_cells())
        wall = [cell for cell in self._wall_cells() if cell not in gates]
        next_to_gate = {gate + side for gate in self.gates for side in (-1, 1)}
        doubled = [(x, y) for x, y in wall if x in next_to_gate or y in next_to_gate]
        # The official engine sorts the y coordinates of a column as strings, so 11 precedes 2.
        wall.sort(key=lambda cell: (cell[0], str(cell[1])))
        return wall + doubled

    def _wall_cells(self) -> list[Point]:
        cells = range(self.size)
        last = self.size - 1
        return [
            (x, y) for x in cells for y in cells if min(x, y, last - x, last - y) in self.layers
        ]

    def setup(self, game: Game, state: State) -> None:
        """Place the snakes outside the wall, without food."""
        cells = self.start_cells(len(state.snakes))
        game_rand(game).shuffle(cells)
        put_snakes(state, cells)
        state.hazards = self.hazards()

    def update(self, game: Game, state: State) -> None:
        """Place food in a free gate cell that is not beside a head or other food.

        The food settings have no effect.
        """
        if state.turn < _FIRST_FOOD_TURN or len(state.food) == self.max_food:
            return
        candidates = list(state.memory.get(CANDIDATES_KEY) or self.gate_cells())
        game_rand(game, state.turn).shuffle(candidates)
        state.memory[CANDIDATES_KEY] = candidates
        taken = set(state.food).union(*(snake.body for snake in state.snakes))
        for cell in [*state.food, *(snake.head for snake in state.snakes)]:
            taken |= neighbors(cell)
        free = [cell for cell in candidates if cell not in taken]
        state.food.extend(free[:1])


LAYOUTS = {
    "hz_castle_wall": _Castle(
        11,
        layers=(2,),
        gates=(5,),
        starts=(((1, 1), (1, 9), (9, 1), (9, 9)), ((1, 5), (5, 1), (5, 9), (9, 5))),
    ),
    "hz_castle_wall_lg": _Castle(
        19,
        layers=(2, 3),
        gates=(8, 10),
        starts=(((1, 1), (1, 17), (17, 1), (17, 17)), ((1, 9), (9, 1), (9, 17), (17, 9))),
    ),
    "hz_castle_wall_xl": _Castle(
        25,
        layers=(3, 4),
        gates=(8, 12, 16),
        starts=(
            ((1, 5), (1, 19), (23, 5), (23, 19)),
            ((5, 1), (5, 23), (19, 1), (19, 23)),
            ((1, 12), (12, 23), (12, 1), (23, 12)),
        ),
        max_food=4,
    ),
}
"""Layouts of the castles by id of the map."""


def _create_map(map_id: str, castle: _Castle) -> Map:
    return Map(
        map_id,
        f"a castle on a board of {castle.size}x{castle.size}, food in its gates",
        castle.setup,
        castle.update,
        sizes=((castle.size, castle.size),),
        players=(1, sum(len(group) for group in castle.starts)),
        sizes_enforced=True,
        players_enforced=True,
    )


CASTLES = tuple(itertools.starmap(_create_map, LAYOUTS.items()))
