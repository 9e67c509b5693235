"""Map ``sinkholes``, with a central disc of hazards.

The disc widens and deepens at intervals.
"""

from __future__ import annotations

from ..food import standard_food
from ..state import Game, State
from .base import Map
from .standard import setup

_FIRST_TURN = 1
_DEFAULT_GROWTH_INTERVAL_TURNS = 10
_RINGS_BY_WIDTH = {7: 3, 19: 7}
_DEFAULT_RINGS = 5


def _update(game: Game, state: State) -> None:
    """Place the standard food, and then one hazard layer on a growing disc.

    Each layer has the next larger radius.
    """
    standard_food(game, state)
    every = game.settings.shrink_every_n_turns
    if every <= 0:
        every = _DEFAULT_GROWTH_INTERVAL_TURNS
    rings = _RINGS_BY_WIDTH.get(state.width, _DEFAULT_RINGS)
    if state.turn > every * rings and state.turn != _FIRST_TURN:
        return
    radius, early = divmod(state.turn - _FIRST_TURN, every)
    if early or radius < 0:
        return
    x, y = state.width // 2, state.height // 2
    around = range(-radius, radius + 1)
    state.hazards += [
        (x + dx, y + dy)
        for dx in around
        for dy in around
        if radius == 0 or not abs(dx) == abs(dy) == radius
    ]


SINKHOLES = Map(
    "sinkholes",
    "a growing disc in the center, deepest in the middle",
    setup,
    _update,
    sizes=((7, 7), (11, 11), (19, 19)),
    players=(1, 8),
)
