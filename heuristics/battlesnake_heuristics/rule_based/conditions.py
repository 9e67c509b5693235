"""Questions that a decision tree may ask with `pipeline.When`."""

from __future__ import annotations

from battlesnake_heuristics.rule_based.view import View

_HUNGRY_BELOW = 30


def hungry(view: View) -> bool:
    """Health is low."""
    return view.you.health < _HUNGRY_BELOW


def longest(view: View) -> bool:
    """Longer than every rival."""
    return all(view.you.length > rival.length for rival in view.rivals)


def crowded(view: View) -> bool:
    """Rivals are left."""
    return bool(view.rivals)
