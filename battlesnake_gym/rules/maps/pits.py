"""Map ``hz_hazard_pits``, with pits that deepen and then disappear.

A pit has at most four hazard layers.
"""

from __future__ import annotations

from ..food import game_rand, standard_food
from ..placement import place_start_food, put_snakes
from ..stages import check_shrink_interval
from ..state import Game, Point, State
from .base import Map

_BOARD_SIZE = 11
START_CELLS: list[Point] = [(1, 1), (9, 1), (1, 9), (9, 9)]
PITS: list[Point] = [
    (x, y)
    for x in range(1, _BOARD_SIZE, 2)
    for y in range(1, _BOARD_SIZE, 2)
    if (x, y) not in START_CELLS
]
_MAX_LAYERS = 4
_CYCLE_LENGTH = 7


def _setup(game: Game, state: State) -> None:
    """Place the snakes in the corners, with the standard initial food."""
    rand = game_rand(game)
    starts = list(START_CELLS)
    rand.shuffle(starts)
    put_snakes(state, starts)
    place_start_food(state, rand)


def _update(game: Game, state: State) -> None:
    """Place the standard food and update the pits.

    The number of hazard layers of all pits changes every ``shrink_every_n_turns`` turns.
    """
    standard_food(game, state)
    every = game.settings.shrink_every_n_turns
    if state.turn % every == 0:
        layers = min(_MAX_LAYERS, state.turn // every % _CYCLE_LENGTH)
        state.hazards = PITS * layers


HAZARD_PITS = Map(
    "hz_hazard_pits",
    "pits that get deeper and vanish again",
    _setup,
    _update,
    sizes=((_BOARD_SIZE, _BOARD_SIZE),),
    players=(0, len(START_CELLS)),
    sizes_enforced=True,
    players_enforced=True,
    check_turn=check_shrink_interval,
)
