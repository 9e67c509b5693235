"""Limited view: the part of a position that one snake sees.

A snake with a view radius r sees the cells at a Manhattan distance of at most r from its head. The
rules of the game do not change. The competition Battlesnake Blackout (IEEE CoG 2026) plays with
r = 5.

Form of a request with limited view:

* ``game.ruleset.settings.viewRadius`` is r.
* The snake ``you`` is complete.
* Every other living snake is listed, with health 0. Its body consists of the visible segments, from
  head to tail. One placeholder replaces each run of hidden segments. The head is the first element
  of this list, and the length is the length of the list.
* The placeholder is ``null`` or ``{"x": -1, "y": -1}``, depending on the engine.
* Food is visible within the radius, and everywhere on the turn on which it appears.
* Hazards are always visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.rules.state import Point, Snake, State, distance

_Cell = TypeVar("_Cell")
_Placeholder = TypeVar("_Placeholder")

HIDDEN_CELL = {"x": -1, "y": -1}
"""Placeholder of hidden segments in requests that do not use ``null``."""

VIEW_RADIUS_KEY = "viewRadius"
"""Key of the view radius in ``game.ruleset.settings``."""


def is_visible(cell: Point, head: Point, view_radius: int) -> bool:
    """Return whether a snake with this head sees ``cell``.

    >>> is_visible((3, 3), (0, 1), 5), is_visible((3, 4), (0, 1), 5)
    (True, False)
    """
    return distance(cell, head) <= view_radius


def collapse_hidden(
    body: Iterable[_Cell], is_seen: Callable[[_Cell], object], placeholder: _Placeholder
) -> list[_Cell | _Placeholder]:
    """Return the seen cells of ``body`` in order, with one placeholder per run of other cells.

    >>> collapse_hidden([8, 7, 3, 9], lambda cell: cell < 8, -1)
    [-1, 7, 3, -1]
    """
    seen: list[_Cell | _Placeholder] = []
    for cell in body:
        if is_seen(cell):
            seen.append(cell)
        elif not seen or seen[-1] != placeholder:
            seen.append(placeholder)
    return seen


def _limit_body(body: Sequence[Point], head: Point, view_radius: int) -> list[Point | None]:
    """Return the visible cells of ``body`` in order, with None for each run of hidden cells.

    >>> _limit_body([(8, 5), (7, 5), (6, 5), (6, 4), (6, 3), (6, 2)], (5, 5), 2)
    [None, (7, 5), (6, 5), (6, 4), None]
    """
    return collapse_hidden(body, lambda cell: is_visible(cell, head, view_radius), None)


HIDDEN_POINT: Point = (-1000, -1000)
"""Cell that stands for a run of hidden segments in a `State` with limited view."""


def limit_state(state: State, snake_id: str, view_radius: int | None) -> State:
    """Return the position that a living snake sees, with `HIDDEN_POINT` for hidden segments.

    The health of opponents is 0, as in a request.

    Args:
        state: Complete position, which does not change.
        snake_id: Id of the snake that observes.
        view_radius: View radius in cells; None returns ``state``.
    """
    own = next((snake for snake in state.snakes if snake.id == snake_id and snake.alive), None)
    if view_radius is None or own is None:
        return state

    def limit_snake(snake: Snake) -> Snake:
        seen = _limit_body(snake.body, own.head, view_radius)
        body = [HIDDEN_POINT if cell is None else cell for cell in seen]
        return replace(snake, body=body, health=0)

    first_new = len(state.food) - state.new_food
    return replace(
        state,
        snakes=[s if s is own or not s.alive else limit_snake(s) for s in state.snakes],
        food=[
            cell
            for index, cell in enumerate(state.food)
            if index >= first_new or is_visible(cell, own.head, view_radius)
        ],
    )


def limit_view(
    request: Mapping[str, Any],
    view_radius: int | None,
    hidden: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the request that the snake ``you`` receives if its view is limited.

    Args:
        request: Body of a complete move request, which does not change. Food with a key
            ``spawn_turn`` is visible everywhere on that turn. Food without this key counts as new
            on turn 0 only.
        view_radius: View radius in cells, at least 0; None for no limit.
        hidden: Placeholder of hidden segments: None (``null``) or ``{"x": -1, "y": -1}``.

    Returns:
        A new request. Unknown fields are copied.

    Raises:
        BoardError: If the request, the radius or the placeholder is invalid.
    """
    check_view_radius(view_radius, "view_radius")
    if hidden is not None and hidden != HIDDEN_CELL:
        raise BoardError(f"hidden must be None or {HIDDEN_CELL}, got {format_value(hidden)}")
    request = json_fields.mapping(request, "")
    game = json_fields.child(request, "game", "")
    ruleset = json_fields.child(game, "ruleset", "game")
    settings = json_fields.child(ruleset, "settings", "game.ruleset")
    limited = dict(settings) | {VIEW_RADIUS_KEY: view_radius}
    result = dict(request) | {
        "game": dict(game) | {"ruleset": dict(ruleset) | {"settings": limited}}
    }
    if view_radius is None:
        return result
    board = json_fields.child(request, "board", "")
    you = json_fields.child(request, "you", "")
    you_id = json_fields.string(you, "id", "you")
    head = _read_body(you, "you")[0]
    turn = json_fields.integer(request, "turn", "", 0)
    result["board"] = dict(board) | {
        "food": [
            food
            for food, path in json_fields.objects(board, "food", "board")
            if _is_food_visible(food, path, turn, head, view_radius)
        ],
        "snakes": [
            snake
            if snake.get("id") == you_id
            else _limit_snake(snake, path, head, view_radius, hidden)
            for snake, path in json_fields.objects(board, "snakes", "board")
            if snake and json_fields.integer(snake, "health", path, 1) > 0
        ],
    }
    return result


def check_view_radius(view_radius: object, name: str) -> int | None:
    """Return ``view_radius`` if it is None or an integer of at least 0.

    Raises:
        BoardError: If it is something else; ``name`` names the field in the message.
    """
    if view_radius is not None and (
        isinstance(view_radius, bool) or not isinstance(view_radius, int) or view_radius < 0
    ):
        raise BoardError(
            f"{name} must be a whole number of at least 0, or null for no limit, "
            f"got {format_value(view_radius)}"
        )
    return view_radius


def _read_body(snake: Mapping[str, Any], path: str) -> list[Point]:
    body = json_fields.points(snake, "body", path)
    if not body:
        raise BoardError(f"{path}.body is missing or empty; list its cells, head first")
    return body


def _is_food_visible(
    food: Mapping[str, Any], path: str, turn: int, head: Point, view_radius: int
) -> bool:
    cell = json_fields.point(food, path)
    spawn_turn = json_fields.integer(food, "spawn_turn", path, 0)
    return spawn_turn == turn or is_visible(cell, head, view_radius)


def _limit_snake(
    snake: Mapping[str, Any],
    path: str,
    head: Point,
    view_radius: int,
    hidden: Mapping[str, int] | None,
) -> dict[str, Any]:
    """Return the visible part of an opponent."""
    cells = _limit_body(_read_body(snake, path), head, view_radius)
    sent = [
        {"x": cell[0], "y": cell[1]} if cell else (None if hidden is None else dict(hidden))
        for cell in cells
    ]
    return dict(snake) | {"health": 0, "length": len(sent), "head": sent[0], "body": sent}
