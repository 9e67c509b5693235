"""The moves that a snake may choose: named action masks, bool ``[4]`` over ``MOVES``.

The definition is here, over a `State`; the engine's C code answers the same for all games and
snakes at once (``Games.action_mask``). Kinds:

* ``none``: every move.
* ``wall``: moves that stay on the board; where the board wraps around, every move.
* ``neck``: every move but the one back into the snake's own neck.
* ``body``: moves to cells that no body will occupy, if no other snake dies. A tail that moves away
  is free; one that stays (the snake ate, or has not yet unrolled) is not.
* ``health``: moves after which the snake still has health: hunger and the target's hazards are
  counted, food there saves it.
* ``head``: moves to cells that no snake of at least the same length can reach with its head.
* ``forbidden``: ``wall``, ``body`` and ``health`` in one: what is left does not lose at once,
  unless by a head-to-head.

Kinds are joined with ``+`` and applied from left to right. One that would leave no move at all is
passed over, so a mask is never all False: with ``fatal+head`` a snake whose every safe move
risks a head-to-head may still take one. Snakes that are out may choose every move.

>>> check("fatal+head")
'fatal+head'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.rules.rulesets import wraps
from battlesnake_gym.rules.stages import health_after, living
from battlesnake_gym.rules.state import MOVES, OFFSETS, Game, Point, Snake, State

WALL, NECK, BODY, HEALTH, HEAD = 1, 2, 4, 8, 16
"""What can be wrong with a move, as bits; engine/csrc/masks.h has the same numbers."""

_BITS = {
    "none": 0,
    "wall": WALL,
    "neck": NECK,
    "body": BODY,
    "health": HEALTH,
    "head": HEAD,
    "fatal": WALL | BODY | HEALTH,
}

KINDS = tuple(_BITS)
"""The kinds there are."""


MaskFn = Callable[[Game, State, str], Sequence[bool]]
"""Which of ``MOVES`` a rule leaves to the snake of this id: four of bool."""

_custom: dict[str, MaskFn] = {}


def register(kind: str, mask_fn: MaskFn) -> None:
    """Register your own kind, to be named and joined with ``+`` like all others.

    The engine does not know it: environments ask ``allows`` for every snake in every turn, in
    Python, which takes some hundred times as long as a mask that is built in. Raises ``ValueError``
    for the name of one that is.
    """
    if kind in _BITS or "+" in kind:
        raise ValueError(f"a mask cannot be called {kind!r}; give it another name, without '+'")
    _custom[kind] = mask_fn


def in_engine(kind: str) -> bool:
    """Whether the engine knows all parts of ``kind``."""
    return all(name in _BITS for name in kind.split("+"))


def check(kind: str) -> str:
    """Return ``kind`` if it is one of `KINDS` or several joined with "+", else ``ValueError``."""
    for name in kind.split("+"):
        if name not in _BITS and name not in _custom:
            extensions.load()
        if name not in _BITS and name not in _custom:
            known = unknown_name_message("action mask", name, [*KINDS, *_custom])
            raise ValueError(f"{known}; several are joined with '+'")
    return kind


@cache
def parts(kind: str) -> bytes:
    """The bits of each part of ``kind``, in order: what the C code is handed."""
    check(kind)
    if not in_engine(kind):
        raise ValueError(f"the engine knows no action mask {kind!r}: a part of it is your own")
    return bytes(_BITS[name] for name in kind.split("+"))


def action_mask(game: Game, state: State, snake_id: str, kind: str) -> NDArray[np.bool_]:
    """Return bool ``[4]``: the moves that ``kind`` leaves to ``snake_id``.

    Raises ``ValueError`` where the kind or the snake is unknown.
    """
    own = _find(state, snake_id)
    check(kind)
    mask = np.ones(len(MOVES), np.bool_)
    found = [move_faults(game, state, snake_id, move) for move in MOVES] if own.alive else [0] * 4
    for name in kind.split("+") if own.alive else ():
        if name in _BITS:
            left = mask & [fault & _BITS[name] == 0 for fault in found]
        else:
            left = mask & np.asarray(_custom[name](game, state, snake_id), np.bool_)
        if left.any():
            mask = left
    return mask


def move_faults(game: Game, state: State, snake_id: str, move: str) -> int:
    """Return all that is wrong with one move of a living snake: `WALL`, `NECK` ... added up.

    Off the board only the wall counts.
    """
    own, wrapped = _find(state, snake_id), wraps(game)
    x, y = own.head[0] + OFFSETS[move][0], own.head[1] + OFFSETS[move][1]
    if wrapped:
        x, y = x % state.width, y % state.height
    if not (0 <= x < state.width and 0 <= y < state.height):
        return WALL
    cell = (x, y)
    players = living(state)
    others = [snake for snake in players if snake is not own]
    return (
        NECK * (own.length > 1 and cell == own.body[1] != own.head)
        | BODY * any(cell in snake.body[:-1] for snake in players)
        | HEALTH * (not _lives_on(game, state, own, cell))
        | HEAD * any(_can_contest(state, own, other, cell, wrapped) for other in others)
    )


def _find(state: State, snake_id: str) -> Snake:
    for snake in state.snakes:
        if snake.id == snake_id:
            return snake
    raise ValueError(f"unknown snake {snake_id!r} on this board")


def _lives_on(game: Game, state: State, own: Snake, cell: Point) -> bool:
    layers = state.hazards.count(cell)
    return health_after(game, own.health, food=cell in state.food, layers=layers) > 0


def _can_contest(state: State, own: Snake, other: Snake, cell: Point, wrapped: bool) -> bool:
    if other.length < own.length:
        return False
    across, along = abs(other.head[0] - cell[0]), abs(other.head[1] - cell[1])
    if wrapped:
        across, along = min(across, state.width - across), min(along, state.height - along)
    return across + along == 1
