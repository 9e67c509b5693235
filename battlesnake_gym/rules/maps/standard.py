"""Maps without hazards: ``standard``, and ``empty`` without food."""

from __future__ import annotations

from ..food import game_rand, standard_food
from ..placement import place_snakes, standard_start
from ..state import Game, State
from .base import Map


def setup(game: Game, state: State) -> None:
    """Place the snakes and the initial food as in the standard game."""
    standard_start(state, game_rand(game))


def setup_snakes_only(game: Game, state: State) -> None:
    """Place the snakes as in the standard game, without food."""
    place_snakes(state, game_rand(game))


def no_update(game: Game, state: State) -> None:
    """Leave the board unchanged."""


STANDARD = Map("standard", "the plain board", setup, standard_food)
EMPTY = Map("empty", "no food at all", setup_snakes_only, no_update)
