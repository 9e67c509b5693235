"""Maps without hazards: ``standard``, and ``empty``, which has no food."""

from __future__ import annotations

from ..food import game_rand, standard_food
from ..placement import place_snakes, place_start_food
from ..state import Game, State
from .base import Map


def setup(game: Game, state: State) -> None:
    """Place the snakes and the initial food as in a standard game."""
    rand = game_rand(game)
    place_snakes(state, rand)
    place_start_food(state, rand)


def _setup_snakes_only(game: Game, state: State) -> None:
    """Place the snakes as in the standard game, without food."""
    place_snakes(state, game_rand(game))


def _no_update(game: Game, state: State) -> None:
    """Do nothing; this function is the update of a map that does not change the board."""


STANDARD_MAP = Map("standard", "the plain board", setup, standard_food)
EMPTY_MAP = Map("empty", "no food at all", _setup_snakes_only, _no_update)
