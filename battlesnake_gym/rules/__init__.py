"""Rules of the game in pure Python.

Tests compare the results of the compiled engine with these rules.

>>> game = Game(seed=7)
>>> state = start(game, 11, 11, ["one", "two"])
>>> step(game, state, {"one": "up", "two": "left"})
>>> state.turn, is_over(game, state)
(1, False)
"""

from __future__ import annotations

from .gorand import GoRand
from .maps import MAPS, Map, known_maps, register_map
from .play import MAX_SIZE, start, step
from .stages import (
    RULESETS,
    Moves,
    Stage,
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
    START_LENGTH,
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
    "MAX_SIZE",
    "MOVES",
    "OFFSETS",
    "RULESETS",
    "START_LENGTH",
    "Game",
    "GoRand",
    "Map",
    "Moves",
    "Point",
    "RulesError",
    "Settings",
    "Snake",
    "Stage",
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
