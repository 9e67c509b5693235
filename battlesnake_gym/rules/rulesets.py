"""Rulesets, which define the stages of a turn and the end of a game."""

from __future__ import annotations

from .stages import (
    Stage,
    always_grow,
    damage_on_hazards,
    eliminate_losers,
    feed,
    move,
    move_wrapped,
    shrink,
    starve,
    wipe_food,
)
from .state import Game, State

_STANDARD_STAGES = (
    Stage("move", move),
    Stage("starve", starve),
    Stage("hazard", damage_on_hazards),
    Stage("feed", feed),
    Stage("eliminate", eliminate_losers),
)
_WRAPPED_STAGES = (Stage("move_wrapped", move_wrapped), *_STANDARD_STAGES[1:])
_CONSTRICTOR_STAGES = (Stage("wipe_food", wipe_food), Stage("always_grow", always_grow))

RULESETS: dict[str, tuple[Stage, ...]] = {
    "standard": _STANDARD_STAGES,
    "solo": _STANDARD_STAGES,
    "royale": (*_STANDARD_STAGES, Stage("shrink", shrink)),
    "wrapped": _WRAPPED_STAGES,
    "constrictor": _STANDARD_STAGES + _CONSTRICTOR_STAGES,
    "wrapped_constrictor": _WRAPPED_STAGES + _CONSTRICTOR_STAGES,
}
"""Stages of each ruleset, in order."""


def ruleset_name(name: str) -> str:
    """Return the name of the ruleset that ``name`` selects.

    An unknown name selects "standard".
    """
    return name if name in RULESETS else "standard"


def _ruleset_stages(game: Game) -> tuple[Stage, ...]:
    return RULESETS[ruleset_name(game.ruleset)]


def wraps(game: Game) -> bool:
    """Return whether the rules wrap the edges of the board.

    A snake that leaves a wrapped board enters the board on the opposite side.
    """
    return _ruleset_stages(game)[0] is _WRAPPED_STAGES[0]


def grows_always(game: Game) -> bool:
    """Return whether snakes grow on every turn, so that no tail cell becomes free."""
    return _ruleset_stages(game)[-1] is _CONSTRICTOR_STAGES[-1]


def is_over(game: Game, state: State) -> bool:
    """Return whether the game has ended, because at most one snake is living.

    In the ruleset ``solo`` and with ``game.solo``, the game ends when no snake is living.
    """
    return len(state.living) < (1 if game.is_solo else 2)
