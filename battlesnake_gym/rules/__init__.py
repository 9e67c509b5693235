"""Rules of the game in pure Python.

Tests compare the results of the compiled engine with these rules.

>>> game = Game(seed=7)
>>> state = start(game, 11, 11, ["one", "two"])
>>> step(game, state, {"one": "up", "two": "left"})
>>> state.turn, is_over(game, state)
(1, False)
"""

from __future__ import annotations

from .maps import MAPS, known_maps, register_map
from .play import start, step
from .stages import (
    RULESETS,
    default_move,
    grows_always,
    health_after,
    is_over,
    ruleset_name,
    wraps,
)
from .state import (
    CAUSES,
    MAX_HEALTH,
    MOVES,
    OFFSETS,
    Game,
    Point,
    RulesError,
    Settings,
    Snake,
    State,
)

__all__ = [
    "CAUSES",
    "MAPS",
    "MAX_HEALTH",
    "MOVES",
    "OFFSETS",
    "RULESETS",
    "Game",
    "Point",
    "RulesError",
    "Settings",
    "Snake",
    "State",
    "default_move",
    "grows_always",
    "health_after",
    "is_over",
    "known_maps",
    "register_map",
    "ruleset_name",
    "start",
    "step",
    "wraps",
]
