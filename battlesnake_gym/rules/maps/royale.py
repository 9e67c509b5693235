"""Map ``royale``, on which one random side after another becomes hazardous."""

from __future__ import annotations

from ..food import standard_food
from ..royale import check_shrink_every, royale_hazards
from ..state import Game, State
from .base import Map
from .standard import setup


def update(game: Game, state: State) -> None:
    """Place the standard food and update the hazards.

    From turn N on, the hazards surround a rectangle.
    """
    standard_food(game, state)
    if state.turn + 1 >= game.settings.shrink_every_n_turns:
        state.hazards = royale_hazards(game, state)


def check_turn(game: Game, state: State) -> None:
    """Reject a ``shrink_every_n_turns`` less than 1."""
    check_shrink_every(game)


ROYALE = Map("royale", "a shrinking rectangle", setup, update, check_turn=check_turn)
