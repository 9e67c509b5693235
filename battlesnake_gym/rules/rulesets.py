"""Rulesets: the stages of a turn, and the end of a game."""

from __future__ import annotations

from .stages import (
    Stage,
    always_grow,
    eliminate_losers,
    feed,
    hazard,
    living,
    move,
    move_wrapped,
    shrink,
    starve,
    wipe_food,
)
from .state import Game, State

_STANDARD = (
    Stage("move", move),
    Stage("starve", starve),
    Stage("hazard", hazard),
    Stage("feed", feed),
    Stage("eliminate", eliminate_losers),
)
_WRAPPED = (Stage("move_wrapped", move_wrapped), *_STANDARD[1:])
_CONSTRICTOR = (Stage("wipe_food", wipe_food), Stage("always_grow", always_grow))

RULESETS: dict[str, tuple[Stage, ...]] = {
    "standard": _STANDARD,
    "solo": _STANDARD,
    "royale": (*_STANDARD, Stage("shrink", shrink)),
    "wrapped": _WRAPPED,
    "constrictor": _STANDARD + _CONSTRICTOR,
    "wrapped_constrictor": _WRAPPED + _CONSTRICTOR,
}
"""Stages of each ruleset, in order."""


def ruleset_name(name: str) -> str:
    """Return the ruleset that ``name`` selects, or standard for unknown names."""
    return name if name in RULESETS else "standard"


def _stages(game: Game) -> tuple[Stage, ...]:
    return RULESETS[ruleset_name(game.ruleset)]


def wraps(game: Game) -> bool:
    """Return whether a snake that leaves the board enters the opposite side."""
    return _stages(game)[0] is _WRAPPED[0]


def grows_always(game: Game) -> bool:
    """Return whether snakes grow every turn, so that no tail's cell is freed."""
    return _stages(game)[-1] is _CONSTRICTOR[-1]


def is_over(game: Game, state: State) -> bool:
    """Return whether the game has ended, which is when at most one snake is living.

    In the ruleset ``solo`` and with ``game.solo``, the game ends when no snake is living.
    """
    alone = game.solo or game.ruleset == "solo"
    return len(living(state)) < (1 if alone else 2)
