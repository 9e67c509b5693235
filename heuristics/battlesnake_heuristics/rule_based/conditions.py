"""Conditions for decision trees (`pipeline.When`)."""

from __future__ import annotations

from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.rule_based.view import View

_HUNGRY_HEALTH = 30


def hungry(view: View) -> bool:
    """Health is low."""
    return view.you.health < _HUNGRY_HEALTH


def longest(view: View) -> bool:
    """Length is greater than the length of every opponent."""
    return all(view.you.length > opponent.length for opponent in view.opponents)


def food_reachable(view: View) -> bool:
    """Seen or remembered food is reachable."""
    return any(view.path_length(move, view.known_food) for move in MOVES)


def crowded(view: View) -> bool:
    """At least one opponent is alive."""
    return bool(view.opponents)
