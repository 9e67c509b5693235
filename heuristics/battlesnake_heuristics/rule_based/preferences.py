"""Preferences, which score moves.

All scores except the scores of `unharmed` are in [0, 1], so that the weights are comparable.
"""

from __future__ import annotations

from battlesnake_gym.rules.state import Point
from battlesnake_heuristics.rule_based.pipeline import Preference
from battlesnake_heuristics.rule_based.view import View

_DISCOUNT = 0.9
"""Discount per cell of distance or turn to a goal."""


@Preference
def food(view: View, move: str) -> float:
    """Approaches food, preferably food that no opponent reaches first."""
    ours = view.food & view.first_reached(move)
    near = _discount_turns(view.turns_to(move, view.food))
    return max(_discount_turns(view.turns_to(move, ours)), near / 2)


@Preference
def known_food(view: View, move: str) -> float:
    """Follows a shortest path to seen or remembered food, around all visible segments."""
    return _discount_turns(view.path_length(move, view.known_food))


@Preference
def path_to_tail(view: View, move: str) -> float:
    """Follows a shortest path to the snake's own tail, around all visible segments."""
    tail = view.grid.bit(view.you.body[-1])
    return _discount_turns(view.path_length(move, tail, free=tail))


@Preference
def space(view: View, move: str) -> float:
    """Leads to many reachable cells."""
    return view.num_reachable(move) / view.grid.everything.bit_count()


@Preference
def territory(view: View, move: str) -> float:
    """Claims cells that the snake reaches before every opponent."""
    return view.first_reached(move).bit_count() / view.grid.everything.bit_count()


@Preference
def center(view: View, move: str) -> float:
    """Approaches the center of the board."""
    middle = view.board.width // 2, view.board.height // 2
    return _discount_distance(view, move, [middle])


@Preference
def edge(view: View, move: str) -> float:
    """Stays close to the walls."""
    target = view.targets[move]
    if target is None:
        return 0.0
    x, y = target
    return _DISCOUNT ** min(x, y, view.board.width - 1 - x, view.board.height - 1 - y)


@Preference
def straight(view: View, move: str) -> float:
    """Goes straight ahead."""
    body = view.you.body
    return float(len(body) > 1 and view.grid.step(body[1], move) == body[0] != body[1])


@Preference
def tail(view: View, move: str) -> float:
    """Follows the snake's own tail."""
    return _discount_turns(view.turns_to(move, view.grid.bit(view.you.body[-1])))


@Preference
def hunt(view: View, move: str) -> float:
    """Attacks the heads of shorter snakes."""
    prey = [snake.head for snake in view.opponents if snake.length < view.you.length]
    return _discount_distance(view, move, prey)


@Preference
def distance(view: View, move: str) -> float:
    """Stays far from the heads of snakes of equal or greater length."""
    feared = [snake.head for snake in view.opponents if snake.length >= view.you.length]
    return 1 - _discount_distance(view, move, feared)


@Preference
def unharmed(view: View, move: str) -> float:
    """Avoids hazards; each lost health point costs 0.01."""
    target = view.targets[move]
    return 0.0 if target is None else min(0, view.health_after(target) - view.you.health + 1) / 100


def _discount_turns(turns: int | None) -> float:
    """Return the discounted score of a goal that is ``turns`` turns away, in [0, 1]."""
    return 0.0 if turns is None else _DISCOUNT ** (turns - 1)


def _discount_distance(view: View, move: str, goals: list[Point]) -> float:
    """Return the discounted score of the nearest goal after a move, in [0, 1]."""
    target = view.targets[move]
    if target is None or not goals:
        return 0.0
    return _DISCOUNT ** min(view.grid.distance(target, goal) for goal in goals)
