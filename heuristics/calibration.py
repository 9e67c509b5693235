"""From what a search says of a position to how likely each snake is to win.

Every living snake is asked for the value of its own best move. The values of one position are
weighed by numbers that were fitted to games of the search against itself, and shared out so that
the chances of all sum to 1 (a softmax): a draw is a share of the game for each of those who died
last. ``benchmarks/analysis.py`` fits the numbers and measures how far they can be relied on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

FEATURES = 3
FAR = 60.0
"""Cells of territory beyond which a value tells no more: ten are a logit of one."""

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
`features`. Printed by ``python -m benchmarks.analysis --fit``; that of decided duels valued by
hand, which were too few, is the one of the others: a forced win is one, however it was valued."""


def features(value: float, turn: int) -> tuple[float, float, float]:
    """What the chance of one snake depends on: its value, that late in the game, and decidedness.

    ``value`` is in cells of territory.
    """
    near = max(-FAR, min(FAR, value)) / 10
    decided = int(value > DECIDED) - int(value < -DRAWN)
    return near, near * math.log1p(min(turn, LATE)) / 5, float(decided)


def weights_for(learned: bool, living: int) -> tuple[float, float, float]:
    """The weights for a position that was valued so, with so many living snakes."""
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


def fit(
    positions: Sequence[NDArray[np.float64]], points: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The weights that make the points of the games likeliest, by Newton's method.

    ``positions`` are arrays [living, `FEATURES`] and ``points`` what each of these snakes got of
    the game in the end, summing to 1. A little weight decay keeps what is seldom seen in bounds;
    what would let a higher value mean a smaller chance is left out.
    """
    for used in ((1, 1, 1), (1, 1, 0), (1, 0, 1), (1, 0, 0)):
        columns = np.array(used, np.float64)
        weights = _fit([rows * columns for rows in positions], points)
        if _sensible(weights):
            break
    return weights


def _sensible(weights: NDArray[np.float64]) -> bool:
    """Whether a higher value never means a smaller chance, however late."""
    near, late, decided = (float(weight) for weight in weights)
    return near >= 0 and near + late * math.log1p(LATE) / 5 >= 0 and decided >= 0


def _fit(
    positions: Sequence[NDArray[np.float64]], points: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    weights = np.zeros(FEATURES)
    for _ in range(50):
        gradient, curvature = -1e-3 * weights, 1e-3 * np.eye(FEATURES)
        for rows, got in zip(positions, points, strict=True):
            share = _softmax(rows @ weights)
            gradient += rows.T @ (got - share)
            mean = rows.T @ share
            curvature += (rows.T * share) @ rows - np.outer(mean, mean)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    raised: NDArray[np.float64] = np.exp(scores - scores.max())
    shares: NDArray[np.float64] = raised / raised.sum()
    return shares
