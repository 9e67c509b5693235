"""The plain boards: ``standard``, and ``empty`` without any food."""

from __future__ import annotations

from ..food import game_rand, standard_food
from ..placement import place_snakes, standard_start
from ..state import Game, State
from .base import Map


def setup(game: Game, state: State) -> None:
    """Snakes at their standard places with their first food."""
    standard_start(state, game_rand(game))


def setup_snakes_only(game: Game, state: State) -> None:
    """Snakes at their standard places, no food."""
    place_snakes(state, game_rand(game))


def no_update(game: Game, state: State) -> None:
    """Nothing ever appears."""


STANDARD = Map("standard", "the plain board", setup, standard_food)
EMPTY = Map("empty", "no food at all", setup_snakes_only, no_update)
