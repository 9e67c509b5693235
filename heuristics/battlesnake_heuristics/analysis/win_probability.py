"""How likely each snake is to win, from what a search says of a position.

Every living snake is asked for the value of its own best move. The values of one position are
weighed by numbers that were fitted to games of the search against itself, and shared out so that
the chances of all sum to 1 (a softmax): a draw is a share of the game for each of those who died
last. ``docs/analysis.md`` shows how far they can be relied on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

VALUE_SCALE = 20.0
"""Cells of territory from which on more of them say little more."""

LATE_TURN = 300
"""The turn from which on it makes no difference how late it is."""

PROVEN_VALUE = 900.0
"""A value beyond this says that the game is won or lost, unless food appears of which the search
does not know."""

FORCED_END_VALUE = 1000 - 0.008
"""A value beyond this says so within 8 turns, if each rival finds its best answer."""

MIN_PROBABILITY = 0.01
"""No living snake's chance is less: a rival may miss the move that wins."""

WEIGHTS: dict[str, dict[int, tuple[float, float, float]]] = {
    "learned": {2: (0.801, -0.346, 0.203), 3: (1.27, -0.554, 0.0)},
    "by hand": {2: (0.159, 0.069, 1.526), 3: (0.459, 0.109, 0.0)},
}
"""By how a position was valued and how many snakes live (3: three and more): the weights of
`features`, fitted to 2,500 positions of 500 games, and 1,200 of 240 valued by hand."""


def features(value: float, turn: int) -> tuple[float, float, float]:
    """What the chance of one snake depends on: its value, that late in the game, and decidedness.

    ``value`` is in cells of territory.
    """
    near = 2 * math.tanh(value / VALUE_SCALE)
    decided = int(value > PROVEN_VALUE) - int(value < -PROVEN_VALUE)
    return near, near * min(turn, LATE_TURN) / LATE_TURN, float(decided)


def weights_for(learned: bool, living: int) -> tuple[float, float, float]:
    """The weights for a position valued this way, with ``living`` living snakes."""
    return WEIGHTS["learned" if learned else "by hand"][min(max(living, 2), 3)]


def win_probabilities(values: Mapping[str, float], turn: int, learned: bool) -> dict[str, float]:
    """How likely each living snake is to win, by what the search says of each (in cells).

    >>> even = chances({"a": 3.0, "b": 3.0}, turn=20, learned=True)
    >>> even["a"], even["b"]
    (0.5, 0.5)
    >>> round(chances({"a": 999.998, "b": -999.998}, turn=20, learned=True)["b"], 2)
    0.01
    >>> 0.95 < chances({"a": 999.0, "b": -999.0}, turn=20, learned=True)["a"] < 1
    True
    """
    weights = weights_for(learned, len(values))
    scores = {
        name: sum(w * x for w, x in zip(weights, features(value, turn), strict=True))
        for name, value in values.items()
        if value >= -FORCED_END_VALUE
        and not (len(values) == 2 and max(values.values()) > FORCED_END_VALUE > value)
    } or dict.fromkeys(values, 0.0)
    top = max(scores.values(), default=0.0)
    shares = {name: math.exp(score - top) for name, score in scores.items()}
    least = MIN_PROBABILITY * sum(shares.values())
    shares = {name: max(shares.get(name, 0.0), least) for name in values}
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}
