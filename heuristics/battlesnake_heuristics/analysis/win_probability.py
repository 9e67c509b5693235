"""Win probabilities of all snakes, computed from search values.

The input is the search value of the position for each living snake. The model computes features of
each value and multiplies the features by weights. The weights were fitted to self-play games. A
softmax normalizes the results, so the probabilities sum to 1. A draw counts as a fraction of a win
for each snake that was eliminated last. ``docs/research/analysis.md`` reports the calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

VALUE_SCALE = 20.0
"""Scale of the tanh function that compresses values, in cells of territory."""

MAX_FEATURE_TURN = 300
"""Upper limit of the turn feature. Later turns count as this turn."""

MIN_PROVEN_VALUE = 900.0
"""Absolute value above which a result counts as proven, in cells.

The proof ignores unpredictable food.
"""

MIN_FORCED_WIN_VALUE = 1000 - 0.008
"""Value above which a proven win occurs within 8 turns, in cells.

The win is proven against the best reply of each opponent.
"""

MIN_PROBABILITY = 0.01
"""Minimum win probability of a living snake.

The minimum is positive, because an opponent may overlook the winning move.
"""

WEIGHTS: dict[str, dict[int, tuple[float, float, float]]] = {
    "learned": {2: (0.801, -0.346, 0.203), 3: (1.27, -0.554, 0.0)},
    "handcrafted": {2: (0.159, 0.069, 1.526), 3: (0.459, 0.109, 0.0)},
}
"""Weights of the features, by evaluation and by number of living snakes.

The key 3 stands for three or more living snakes. The weights of ``learned`` were fitted to 2,500
positions of 500 games. The weights of ``handcrafted`` were fitted to 1,200 positions of 240 games.
"""


def _compute_features(value: float, turn: int) -> tuple[float, float, float]:
    """Return the features of one snake's ``value``, which is in cells of territory.

    The features are the compressed value, the compressed value times the turn, and the sign of a
    proven result.
    """
    near = 2 * math.tanh(value / VALUE_SCALE)
    decided = int(value > MIN_PROVEN_VALUE) - int(value < -MIN_PROVEN_VALUE)
    return near, near * min(turn, MAX_FEATURE_TURN) / MAX_FEATURE_TURN, float(decided)


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
    weights = WEIGHTS["learned" if learned else "handcrafted"][min(max(len(values), 2), 3)]
    scores = {
        name: sum(w * x for w, x in zip(weights, _compute_features(value, turn), strict=True))
        for name, value in values.items()
        if value >= -MIN_FORCED_WIN_VALUE
        and not (len(values) == 2 and max(values.values()) > MIN_FORCED_WIN_VALUE > value)
    } or dict.fromkeys(values, 0.0)
    top = max(scores.values(), default=0.0)
    shares = {name: math.exp(score - top) for name, score in scores.items()}
    least = MIN_PROBABILITY * sum(shares.values())
    shares = {name: max(shares.get(name, 0.0), least) for name in values}
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}
