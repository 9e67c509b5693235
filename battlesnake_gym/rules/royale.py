"""Hazards of the ruleset and the map ``royale``.

The hazards surround a shrinking rectangle.
"""

from __future__ import annotations

from .errors import RulesError
from .food import game_rand
from .state import Game, Point, State


def royale_hazards(game: Game, state: State) -> list[Point]:
    """List the cells outside a shrinking rectangle.

    The rectangle shrinks on one random side every ``shrink_every_n_turns`` turns.
    """
    rand = game_rand(game)
    left, right, bottom, top = 0, state.width - 1, 0, state.height - 1
    for _ in range((state.turn + 1) // game.settings.shrink_every_n_turns):
        if left > right or bottom > top:
            # The rectangle is empty, so further draws would have no effect.
            break
        side = rand.intn(4)
        left += side == 0
        right -= side == 1
        bottom += side == 2
        top -= side == 3
    return [
        (x, y)
        for x in range(state.width)
        for y in range(state.height)
        if not (left <= x <= right and bottom <= y <= top)
    ]


def check_shrink_interval(game: Game, state: State) -> None:
    """Raise `RulesError` if ``shrink_every_n_turns`` is less than 1."""
    every = game.settings.shrink_every_n_turns
    if every < 1:
        is_royale = "royale" in (game.ruleset, game.map)
        where = "in a royale game" if is_royale else f"on map {game.map!r}"
        raise RulesError(
            f"shrink_every_n_turns must be 1 or more {where}, got {every}: "
            "set it to 25, the default"
        )
