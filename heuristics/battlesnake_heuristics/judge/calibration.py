"""How likely each snake is to win, from what a search says of a position.

Every living snake is asked for the value of its own best move. The values of one position are
weighed by numbers that were fitted to games of the search against itself, and shared out so that
the chances of all sum to 1 (a softmax): a draw is a share of the game for each of those who died
last. ``docs/analysis.md`` shows how far they can be relied on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

FAR = 60.0
"""Cells of territory beyond which a value says no more: ten are a logit of one."""

LATE = 300
"""The turn from which on it makes no difference how late it is."""

DECIDED = 900.0
"""A value beyond this says that the game is won or lost, in cells of territory."""

DRAWN = 400.0
"""A value below minus this says that nothing better than a draw can be forced."""

WEIGHTS: dict[str, dict[int, tuple[float, float, float]]] = {
    "learned": {2: (2.024, -1.453, 4.431), 3: (0.071, 0.425, 0.0)},
    "by hand": {2: (0.056, 0.058, 4.431), 3: (0.048, -0.017, 1.186)},
}
"""By how a position was valued and how many snakes live (3: three and more): the weights of
`features`. That of decided duels valued by hand, which were too few, is the one of the others: a
forced win is one, however it was valued."""


def features(value: float, turn: int) -> tuple[float, float, float]:
    """What the chance of one snake depends on: its value, that late in the game, and decidedness.

    ``value`` is in cells of territory.
    """
    near = max(-FAR, min(FAR, value)) / 10
    decided = int(value > DECIDED) - int(value < -DRAWN)
    return near, near * math.log1p(min(turn, LATE)) / 5, float(decided)


def weights_for(learned: bool, living: int) -> tuple[float, float, float]:
    """The weights for a position valued this way, with ``living`` living snakes."""
    return WEIGHTS["learned" if learned else "by hand"][min(max(living, 2), 3)]


def chances(values: Mapping[str, float], turn: int, learned: bool) -> dict[str, float]:
    """How likely each living snake is to win, by what the search says of each (in cells).

    >>> even = chances({"a": 3.0, "b": 3.0}, turn=20, learned=True)
    >>> even["a"], even["b"]
    (0.5, 0.5)
    >>> chances({"a": 999.0, "b": -999.0}, turn=20, learned=True)["a"] > 0.95
    True
    """
    weights = weights_for(learned, len(values))
    scores = {
        name: sum(w * x for w, x in zip(weights, features(value, turn), strict=True))
        for name, value in values.items()
    }
    top = max(scores.values(), default=0.0)
    shares = {name: math.exp(score - top) for name, score in scores.items()}
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}
