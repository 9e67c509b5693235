"""Action masks: the moves that a snake may choose, bool ``[4]`` over ``MOVES``.

This module computes the masks of a `State`. The engine's C code computes the same masks for all
games and snakes in one call (``Games.action_mask``). Kinds:

* ``none``: every move.
* ``wall``: moves that stay on the board; on a wrapped board, every move.
* ``neck``: every move except the move back to the snake's neck.
* ``body``: moves to cells that no body will occupy if no other snake is eliminated. A tail cell is
  free if the tail moves away. It is blocked if segments are stacked on the tail.
* ``health``: moves after which the health is above 0, considering hunger, hazards and food on the
  target cell.
* ``head``: moves to cells that no snake of equal or greater length can enter on the same turn.
* ``fatal``: the combination of ``wall``, ``body`` and ``health``. The remaining moves do not lose
  immediately, except by a head-to-head collision.

Several kinds are joined with ``+`` and applied from left to right. A kind that would exclude every
remaining move is skipped, so every mask allows at least one move. With ``fatal+head``, for example,
a snake may risk a head-to-head collision if every other move is fatal. Eliminated snakes may choose
every move.

>>> check_kind("fatal+head")
'fatal+head'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.grid import grid
from battlesnake_gym.boards.limited_view import limit_state
from battlesnake_gym.common import extensions
from battlesnake_gym.rules.stages import health_after, wraps
from battlesnake_gym.rules.state import MOVES, Game, State

WALL, NECK, BODY, HEALTH, HEAD = 1, 2, 4, 8, 16
"""Flags of the faults of a move, one bit per fault.

``engine/csrc/masks.h`` defines the same values.
"""

_FAULTS_BY_KIND = {
    "none": 0,
    "wall": WALL,
    "neck": NECK,
    "body": BODY,
    "health": HEALTH,
    "head": HEAD,
    "fatal": WALL | BODY | HEALTH,
}

KINDS = tuple(_FAULTS_BY_KIND)
"""Names of the built-in kinds of action masks."""


MaskFn = Callable[[Game, State, str], Sequence[bool]]
"""Function that returns whether a snake may choose each move, as four bools.

The arguments are the game, the state and the id of the snake.
"""

_custom_masks: dict[str, MaskFn] = {}


def register(kind: str, mask_fn: MaskFn) -> None:
    """Register a custom kind of mask.

    The kind can be joined with ``+`` like a built-in kind. The engine calls ``mask_fn`` in Python
    for every snake on every turn. These calls take about a hundred times as long as a built-in
    mask.

    Args:
        kind: Name of the mask kind; must not contain "+".
        mask_fn: Function that returns the allowed moves of one snake.

    Raises:
        ValueError: If ``kind`` is built in or contains "+".
    """
    if kind in _FAULTS_BY_KIND or "+" in kind:
        raise ValueError(f"a mask cannot be called {kind!r}; give it another name, without '+'")
    _custom_masks[kind] = mask_fn


def check_kind(kind: str) -> str:
    """Return ``kind`` after a check that all kinds joined with ``+`` are known.

    Raises:
        ValueError: If a kind is unknown; the message suggests the nearest name.
    """
    if not isinstance(kind, str):
        raise ValueError(
            f"action_mask must be text, got {kind!r}; choose one of {', '.join(KINDS)}"
        )
    for name in kind.split("+"):
        if name not in _FAULTS_BY_KIND and name not in _custom_masks:
            extensions.load_all()
        if name not in _FAULTS_BY_KIND and name not in _custom_masks:
            known = extensions.unregistered_name_message(
                "action mask", name, [*KINDS, *_custom_masks]
            )
            raise ValueError(f"{known}; join several kinds with '+'")
    return kind


@cache
def fault_flags(kind: str) -> bytes | None:
    """Return one byte of fault flags per kind that ``kind`` joins, for the C code.

    The result is None if a part of ``kind`` is custom.
    """
    names = check_kind(kind).split("+")
    if not all(name in _FAULTS_BY_KIND for name in names):
        return None
    return bytes(_FAULTS_BY_KIND[name] for name in names)


def action_mask(game: Game, state: State, snake_id: str, kind: str) -> NDArray[np.bool_]:
    """Compute the action mask of one snake, bool ``[4]``.

    Args:
        game: Rules of the game.
        state: Current position.
        snake_id: Id of the snake that chooses a move.
        kind: A kind in `KINDS`, a registered kind, or several kinds joined with "+".

    Raises:
        ValueError: If the kind or the snake is unknown, or a custom mask is invalid.
    """
    state = limit_state(state, snake_id, game.settings.view_radius)
    own = state.snake(snake_id)
    check_kind(kind)
    mask = np.ones(len(MOVES), np.bool_)
    found = [move_faults(game, state, snake_id, move) for move in MOVES] if own.alive else [0] * 4
    for name in kind.split("+") if own.alive else ():
        if name in _FAULTS_BY_KIND:
            left = mask & [fault & _FAULTS_BY_KIND[name] == 0 for fault in found]
        else:
            allowed = np.asarray(_custom_masks[name](game, state, snake_id))
            if allowed.shape != mask.shape or allowed.dtype.kind not in "biuf":
                raise ValueError(
                    f"action mask {name!r} must return four booleans, got {allowed.tolist()!r}"
                )
            left = mask & allowed.astype(np.bool_)
        if left.any():
            mask = left
    return mask


def write_masks(game: Game, states: Iterable[State], kind: str, out: NDArray[np.bool_]) -> None:
    """Write the action masks of all snakes in ``states`` to ``out``, bool [N, S, 4]."""
    check_kind(kind)
    out[:] = True
    for i, state in enumerate(states):
        for seat, snake in enumerate(state.snakes):
            out[i, seat] = action_mask(game, state, snake.id, kind)


def move_faults(game: Game, state: State, snake_id: str, move: str) -> int:
    """Return the faults of a living snake's move, as the sum of their flags.

    For a move off the board, the result is only `WALL`.
    """
    own, board = state.snake(snake_id), grid(state.width, state.height, wraps(game))
    cell = board.step(own.head, move)
    if cell is None:
        return WALL
    players = state.living
    others = [snake for snake in players if snake is not own]
    food, layers = cell in state.food, state.hazards.count(cell)
    return (
        NECK * (own.length > 1 and cell == own.body[1] != own.head)
        | BODY * any(cell in snake.body[:-1] for snake in players)
        | HEALTH * (health_after(game, own.health, food=food, layers=layers) <= 0)
        | HEAD * any(s.length >= own.length and board.distance(s.head, cell) == 1 for s in others)
    )
