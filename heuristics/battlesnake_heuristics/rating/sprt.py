"""Statistics of matches: sequential tests and Elo estimates.

A game pair consists of two games with the same start position and exchanged seats, so that a good
seat favors neither side. Side A scores 0, 1/2, 1, 3/2 or 2 points in a pair (a draw counts half).
The result of a match is five numbers of pairs, one per outcome (a *pentanomial*). The two games of
a pair are correlated, but the pairs are independent samples. A test on single games would
underestimate the variance.

The test is a generalized sequential probability ratio test (GSPRT; Michel Van den Bergh for
fishtest, after Xiaoou Li, Jingchen Liu and Zhiliang Ying 2014). The test statistic is a likelihood
ratio. Each hypothesis contributes the likelihood of its most likely distribution of pairs. In this
distribution, A is ``elo1`` (H1) or ``elo0`` (H0) Elo stronger.

>>> sprt = Sprt(elo0=0, elo1=20)
>>> sprt.decide([10, 30, 120, 100, 60])
'H1'
>>> EloEstimate.from_pairs([10, 30, 120, 100, 60])
EloEstimate(score=0.633, elo=94.6, low=73.6, high=114.9, pairs=320)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

_EloT = TypeVar("_EloT", float, NDArray[np.float64])

PAIR_SCORES = np.arange(5) / 4
"""Score of side A per game, for each outcome of a pair, float64 (5,)."""

Z95 = 1.959964
"""Quantile of the standard normal distribution for a two-sided 95% interval."""

_EMPTY_OUTCOME_PRIOR = 1e-3
"""Number of pairs assumed for an outcome that did not occur.

The number is positive, so that the probability of every outcome is positive.
"""


def _elo_difference(score: float) -> float:
    """Return the Elo difference that predicts the score ``score``.

    >>> round(_elo_difference(0.64), 1), _elo_difference(1.0)
    (100.0, inf)
    """
    if not 0 < score < 1:
        return math.inf if score >= 1 else -math.inf
    return -400 * math.log10(1 / score - 1) + 0.0


def expected_score(elo: _EloT) -> _EloT:
    """Return the expected score of a player who is ``elo`` Elo stronger.

    For an array of differences, the result is an array.

    >>> expected_score(0), round(expected_score(100), 2)
    (0.5, 0.64)
    """
    return 1 / (1 + 10 ** (-elo / 400))


@dataclass(frozen=True, slots=True)
class Sprt:
    """A sequential probability ratio test of H1 against H0.

    H1 states that side A is at least ``elo1`` Elo stronger than side B. H0 states that side A is at
    most ``elo0`` Elo stronger.

    Args:
        elo0: Elo difference of H0.
        elo1: Elo difference of H1.
        alpha: Maximum probability of rejecting H0 when H0 is true, in (0, 0.5).
        beta: Maximum probability of rejecting H1 when H1 is true, in (0, 0.5).

    Raises:
        ValueError: If the bounds do not define a test.
    """

    elo0: float
    elo1: float
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not (math.isfinite(self.elo0) and math.isfinite(self.elo1) and self.elo0 < self.elo1):
            raise ValueError(
                f"the first Elo bound must be below the second, got {self.elo0:g} and "
                f"{self.elo1:g}; try 0 20"
            )
        for name in ("alpha", "beta"):
            if not 0 < getattr(self, name) < 0.5:
                raise ValueError(
                    f"{name} must be above 0 and below 0.5, got {getattr(self, name):g}; try 0.05"
                )

    @property
    def log_likelihood_bounds(self) -> tuple[float, float]:
        """The log-likelihood ratios at which H0 and H1 are accepted."""
        return math.log(self.beta / (1 - self.alpha)), math.log((1 - self.beta) / self.alpha)

    def log_likelihood_ratios(self, pairs: ArrayLike) -> NDArray[np.float64]:
        """Return the log-likelihood ratios of H1 to H0 for one or more matches.

        Each hypothesis contributes the likelihood of the most likely distribution with its expected
        score.

        Args:
            pairs: Numbers of pairs by outcome, (..., 5), not negative.

        Returns:
            float64 (...).

        Raises:
            ValueError: If ``pairs`` has another shape or contains a negative number.
        """
        counts = np.asarray(pairs, np.float64)
        if counts.shape[-1:] != PAIR_SCORES.shape or (counts < 0).any():
            raise ValueError(f"pairs must be five numbers of pairs, not negative, got {pairs!r}")
        counts = np.where(counts == 0, _EMPTY_OUTCOME_PRIOR, counts)
        share = counts / counts.sum(-1, keepdims=True)
        density0, density1 = (
            _log_density_ratio(share, expected_score(elo)) for elo in (self.elo0, self.elo1)
        )
        result: NDArray[np.float64] = (counts * (density1 - density0)).sum(-1)
        return result

    def decide(self, pairs: ArrayLike) -> str | None:
        """Return the accepted hypothesis, "H1" or "H0", or None if more pairs are needed."""
        low, high = self.log_likelihood_bounds
        llr = float(self.log_likelihood_ratios(pairs))
        return "H1" if llr >= high else "H0" if llr <= low else None


def _log_density_ratio(outcome_fractions: NDArray[np.float64], score: float) -> NDArray[np.float64]:
    """Return ln(p / f) for the most likely distribution p with mean ``score``.

    f is the observed distribution ``outcome_fractions``. The solution is
    p = f / (1 + x (outcome - score)), with the x for which the mean is ``score`` (Owen 1988). The
    function finds x by bisection. All arrays are float64 (..., 5).
    """
    off = PAIR_SCORES - score
    # Between these bounds, all probabilities p are positive, and the mean decreases with x.
    low = np.full((*outcome_fractions.shape[:-1], 1), -1 / off[-1])
    high = np.full_like(low, -1 / off[0])
    for _ in range(np.finfo(np.float64).nmant):  # Each iteration determines one bit of x.
        middle = (low + high) / 2
        too_high = (outcome_fractions * off / (1 + middle * off)).sum(-1, keepdims=True) > 0
        low, high = np.where(too_high, middle, low), np.where(too_high, high, middle)
    result: NDArray[np.float64] = -np.log1p((low + high) / 2 * off)
    return result


@dataclass(frozen=True, slots=True)
class EloEstimate:
    """The estimated score and the estimated Elo difference of side A.

    ``low`` and ``high`` are the bounds of the 95% confidence interval of the Elo difference.
    """

    score: float
    elo: float
    low: float
    high: float
    pairs: int

    @classmethod
    def from_pairs(cls, pairs: Sequence[int] | NDArray[np.int64]) -> EloEstimate:
        """Estimate the Elo difference of a match from the numbers of pairs by outcome.

        The confidence interval follows Agresti and Coull (1998), with pairs instead of games. The
        method adds one won and one lost pair before the computation of the mean and the standard
        error. A match without a loss therefore has a finite lower bound.
        """
        counts = np.asarray(pairs, np.float64)
        total = counts.sum()
        if not total:
            return cls(0.5, 0.0, -math.inf, math.inf, 0)
        careful = counts + np.array([1, 0, 0, 0, 1])
        mean = float(careful @ PAIR_SCORES / careful.sum())
        variance = float(careful @ (PAIR_SCORES - mean) ** 2 / careful.sum())
        error = Z95 * math.sqrt(variance / careful.sum())
        score = float(counts @ PAIR_SCORES / total)
        low, middle, high = (
            round(_elo_difference(value), 1)
            for value in (mean - error, score, min(1.0, mean + error))
        )
        return cls(round(score, 3), middle, low, high, int(total))

    def __str__(self) -> str:
        return f"{self.elo:+.0f} Elo ({self.low:+.0f} to {self.high:+.0f})"

    @property
    def score_with_interval(self) -> tuple[float, float, float]:
        """The score and its 95% confidence interval (low, high), in [0, 1].

        >>> EloEstimate.from_pairs([0, 1, 2, 5, 12]).score_with_interval
        (0.85, 0.704, 0.933)
        """
        return self.score, round(expected_score(self.low), 3), round(expected_score(self.high), 3)


def wilson_interval(fraction: float, games: int) -> tuple[float, float]:
    """Return Wilson's 95% confidence interval of an observed fraction.

    Args:
        fraction: Observed fraction in [0, 1].
        games: Number of games.

    >>> low, high = wilson_interval(0.5, 100)
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    middle = (fraction + Z95**2 / (2 * games)) / (1 + Z95**2 / games)
    spread = math.sqrt(fraction * (1 - fraction) / games + Z95**2 / (4 * games**2))
    half = Z95 / (1 + Z95**2 / games) * spread
    return max(0.0, middle - half), min(1.0, middle + half)


def pair_outcome(points: float) -> int:
    """Convert the points of side A in a pair to the index of the outcome.

    >>> [pair_outcome(points) for points in (0, 0.5, 1, 1.5, 2)]
    [0, 1, 2, 3, 4]
    """
    return round(2 * points)
