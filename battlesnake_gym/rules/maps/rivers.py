"""River and island maps, whose hazards are a cross of water with bridges.

The file ``rules/rivers.txt`` contains one block per map. The first line is the id, the width and
height of the board, and the maximum number of snakes. Each of the next four lines lists the start
cells of one quadrant. The remaining lines list the hazards. All lists of cells have the order of
the official engine.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from ..food import game_rand, standard_food
from ..placement import place_food_beside, place_in_quadrants
from ..state import Game, Point, State
from .base import Map


@dataclass(frozen=True, slots=True)
class _Layout:
    """Layout of one map."""

    size: int
    max_snakes: int
    starts: list[list[Point]]
    hazards: list[Point]

    def setup(self, game: Game, state: State) -> None:
        """Place the hazards, the snakes in the quadrants, and the food."""
        rand = game_rand(game)
        place_in_quadrants(state, rand, self.starts)
        state.hazards = list(self.hazards)
        taken = set(self.hazards).union(*(snake.body for snake in state.snakes))
        place_food_beside(state, rand, taken)


def _parse_cells(text: str) -> list[Point]:
    """Parse a list of cells such as ``3,1 1,3``."""
    return [(int(x), int(y)) for x, y in (pair.split(",") for pair in text.split())]


def _read_layouts() -> dict[str, _Layout]:
    """Read the layouts of ``rivers.txt`` by map id."""
    layouts = {}
    for block in (Path(__file__).parents[1] / "rivers.txt").read_text().split("\n\n"):
        head, *rows = block.splitlines()
        map_id, size, max_snakes = head.split()
        cells = [_parse_cells(row) for row in rows]
        hazards = list(itertools.chain(*cells[4:]))
        layouts[map_id] = _Layout(int(size), int(max_snakes), cells[:4], hazards)
    return layouts


LAYOUTS = _read_layouts()
"""Layouts of all river and island maps by id."""


def _update(game: Game, state: State) -> None:
    """Place the standard food on cells without hazards."""
    standard_food(game, state, avoid_hazards=True)


def _create_map(map_id: str, layout: _Layout) -> Map:
    kind = "islands" if "islands" in map_id else "rivers"
    return Map(
        map_id,
        f"{kind} with bridges on a board of {layout.size}x{layout.size}",
        layout.setup,
        _update,
        sizes=((layout.size, layout.size),),
        players=(1, layout.max_snakes),
        sizes_enforced=True,
        players_enforced=True,
    )


RIVERS_AND_ISLANDS = tuple(itertools.starmap(_create_map, LAYOUTS.items()))
