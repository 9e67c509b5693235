"""Win probabilities of all snakes, computed from search values.

The search values the position for every living snake. Features of these values are multiplied by
weights that were fitted to self-play games. A softmax normalizes the results, so the probabilities
sum to 1. A draw counts as a fraction of a win for each snake that died last. ``docs/analysis.md``
reports the calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

VALUE_SCALE = 20.0
"""Scale of the tanh that compresses values, in cells of territory."""

LATE_TURN = 300
"""Maximum of the turn feature: later turns are clamped to this turn."""

PROVEN_VALUE = 900.0
"""Exclusive lower bound of the absolute value of a proven result, in cells.

The proof ignores unpredictable food.
"""

FORCED_END_VALUE = 1000 - 0.008
"""Exclusive lower bound of the value of a proven win within 8 turns, in cells.

The win holds against the best reply of each opponent.
"""

MIN_PROBABILITY = 0.01
"""Minimum win probability of a living snake.

The minimum is positive because an opponent may miss the winning move.
"""

WEIGHTS: dict[str, dict[int, tuple[float, float, float]]] = {
    "learned": {2: (0.801, -0.346, 0.203), 3: (1.27, -0.554, 0.0)},
    "handcrafted": {2: (0.159, 0.069, 1.526), 3: (0.459, 0.109, 0.0)},
}
"""Weights of `features`, by evaluation and by number of living snakes.

The key 3 stands for three or more living snakes. The weights were fitted to 2,500 positions of 500
games; with the handcrafted evaluation, to 1,200 positions of 240 games.
"""


def features(value: float, turn: int) -> tuple[float, float, float]:
    """Return the features of one snake's ``value``, in cells of territory.

    The features are the compressed value, the compressed value times the turn, and the sign of a
    proven result.
    """
    near = 2 * math.tanh(value / VALUE_SCALE)
    decided = int(value > PROVEN_VALUE) - int(value < -PROVEN_VALUE)
    return near, near * min(turn, LATE_TURN) / LATE_TURN, float(decided)


def weights_for(learned: bool, living: int) -> tuple[float, float, float]:
    """Return the weights for the evaluation used and the number of living snakes."""
    return WEIGHTS["learned" if learned else "handcrafted"][min(max(living, 2), 3)]


def win_probabilities(values: Mapping[str, float], turn: int, learned: bool) -> dict[str, float]:
    """Compute the win probability of each living snake.

    ``values`` are search values in cells of territory, by snake id.

    >>> even = win_probabilities({"a": 3.0, "b": 3.0}, turn=20, learned=True)
    >>> even["a"], even["b"]
    (0.5, 0.5)
    >>> round(win_probabilities({"a": 999.998, "b": -999.998}, turn=20, learned=True)["b"], 2)
    0.01
    >>> 0.95 < win_probabilities({"a": 999.0, "b": -999.0}, turn=20, learned=True)["a"] < 1
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
