"""Map ``hz_scatter``, which adds a random hazard every second turn.

The hazards finally fill the board.
"""

from __future__ import annotations

from ..food import game_rand, standard_food
from ..state import Game, RulesError, State
from .base import Map
from .standard import setup

_SPAWN_INTERVAL_TURNS = 2


def _update(game: Game, state: State) -> None:
    """Place the standard food, and then a hazard on the next cell of a shuffled list."""
    standard_food(game, state)
    turn = state.turn + 1
    if turn % _SPAWN_INTERVAL_TURNS:
        return
    cells = [(x, y) for x in range(state.width) for y in range(state.height)]
    game_rand(game).shuffle(cells)
    state.hazards.append(cells[turn // _SPAWN_INTERVAL_TURNS - 1])


def _check_turn(game: Game, state: State) -> None:
    """Raise `RulesError` if all cells have hazards.

    The official engine would crash on this turn.
    """
    turn = state.turn + 1
    if (
        turn % _SPAWN_INTERVAL_TURNS == 0
        and turn // _SPAWN_INTERVAL_TURNS > state.width * state.height
    ):
        raise RulesError(
            f"turn {turn} of map 'hz_scatter' needs a cell without a hazard, but all "
            f"{state.width * state.height} cells have hazards: end the game by turn {turn - 1}"
        )


SCATTER = Map("hz_scatter", "a random cell every 2 turns", setup, _update, check_turn=_check_turn)
