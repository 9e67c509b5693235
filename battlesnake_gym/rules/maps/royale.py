"""Map ``royale``, whose hazards surround a rectangle that shrinks on random sides."""

from __future__ import annotations

from ..food import standard_food
from ..stages import check_shrink_interval, royale_hazards
from ..state import Game, State
from .base import Map
from .standard import setup


def _update(game: Game, state: State) -> None:
    """Place the standard food and update the hazards.

    The first hazards appear on turn ``shrink_every_n_turns``.
    """
    standard_food(game, state)
    if state.turn + 1 >= game.settings.shrink_every_n_turns:
        state.hazards = royale_hazards(game, state)


ROYALE = Map("royale", "a shrinking rectangle", setup, _update, check_turn=check_shrink_interval)
