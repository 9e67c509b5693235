"""Conditions for decision trees (`pipeline.When`)."""

from __future__ import annotations

from battlesnake_heuristics.rule_based.view import View

_HUNGRY_BELOW = 30


def hungry(view: View) -> bool:
    """Health is low."""
    return view.you.health < _HUNGRY_BELOW


def longest(view: View) -> bool:
    """Length is greater than every opponent's length."""
    return all(view.you.length > opponent.length for opponent in view.opponents)


def crowded(view: View) -> bool:
    """At least one opponent is alive."""
    return bool(view.opponents)
