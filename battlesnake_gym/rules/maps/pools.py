"""Map ``healing_pools``, whose hazards heal if the hazard damage is negative."""

from __future__ import annotations

from ..food import game_rand, standard_food
from ..placement import remove_random_cell
from ..state import Game, Point, State
from . import standard
from .base import Map

_POOLS: dict[int, list[list[Point]]] = {
    7: [[(3, 3)]],
    11: [[(3, 3), (7, 7)], [(3, 7), (7, 3)], [(3, 5), (7, 5)], [(5, 7), (5, 3)]],
    19: [
        [(5, 5), (13, 13), (5, 13), (13, 5)],
        [(5, 10), (13, 10), (10, 13), (10, 5)],
    ],
}
"""Possible sets of pools by board size.

The setup chooses one set at random.
"""

NUM_OUTPUTS_KEY = "pool_outputs"
"""Key of the number of generator outputs used by removals.

The number is in `State.memory`.
"""


def _setup(game: Game, state: State) -> None:
    """Set up the standard start position and one set of pools."""
    standard.setup(game, state)
    choices = _POOLS[state.width]
    state.hazards = list(choices[game_rand(game).intn(len(choices))])


def _update(game: Game, state: State) -> None:
    """Place the standard food, and remove a random pool at intervals.

    The interval is ``shrink_every_n_turns`` turns. The official engine uses one generator for all
    removals of a game.
    """
    standard_food(game, state)
    every = game.settings.shrink_every_n_turns
    if every <= 0 or state.turn <= 0 or state.turn % every or not state.hazards:
        return
    rand = game_rand(game)
    rand.skip(state.memory.get(NUM_OUTPUTS_KEY, 0))
    remove_random_cell(state.hazards, rand)
    state.memory[NUM_OUTPUTS_KEY] = rand.drawn


HEALING_POOLS = Map(
    "healing_pools",
    "pools that heal where the damage is negative, removed one by one",
    _setup,
    _update,
    sizes=tuple((size, size) for size in _POOLS),
    players=(1, 8),
    sizes_enforced=True,
)
