"""Simulated matches: error rates of the test, and coverage of the intervals."""

import math

import numpy as np
import pytest

from battlesnake_heuristics.rating.sprt import (
    PAIR_SCORES,
    EloEstimate,
    Sprt,
    _elo_difference,
    _log_density_ratio,
    expected_score,
)

MATCHES = 1000
KINDS = {
    "decided": [0.25, 0.0, 0.5, 0.0, 0.25],  # the seat decides half of the games
    "drawish": [0.02, 0.2, 0.56, 0.2, 0.02],
    "noisy": [0.3, 0.05, 0.3, 0.05, 0.3],
}


def of_mean(kind: str, score: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the kind's distribution of pairs, tilted to the mean ``score``."""
    low, high = -50.0, 50.0
    for _ in range(100):
        tilt = (low + high) / 2
        chances = np.array(KINDS[kind]) * np.exp(tilt * PAIR_SCORES)
        chances /= chances.sum()
        low, high = (tilt, high) if chances @ PAIR_SCORES < score else (low, tilt)
    return chances


def wrong(kind: str, sprt: Sprt, true_elo: float) -> float:
    """Return the fraction of matches between sides ``true_elo`` apart with the wrong verdict."""
    random = np.random.default_rng(7)
    chances = of_mean(kind, expected_score(true_elo))
    counts = np.zeros((MATCHES, 5))
    verdict = np.zeros(MATCHES, np.int64)
    low, high = sprt.log_likelihood_bounds
    for _ in range(3000):
        open_ = np.flatnonzero(verdict == 0)
        if not len(open_):
            break
        counts[open_] += random.multinomial(1, chances, len(open_))
        llr = sprt.log_likelihood_ratios(counts[open_])
        verdict[open_] = np.where(llr >= high, 1, np.where(llr <= low, -1, 0))
    assert (verdict != 0).all()
    return float((verdict == (1 if true_elo <= sprt.elo0 else -1)).mean())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("alpha", "beta"), [(0.05, 0.05), (0.02, 0.1)])
def test_simulated_matches_hold_the_error_rates(kind: str, alpha: float, beta: float) -> None:
    sprt = Sprt(0, 100, alpha, beta)
    # Three standard errors of the simulation.
    assert wrong(kind, sprt, 0) < alpha + 3 * math.sqrt(alpha / MATCHES)
    assert wrong(kind, sprt, 100) < beta + 3 * math.sqrt(beta / MATCHES)


def test_a_side_that_is_much_better_is_seldom_taken_for_worse() -> None:
    assert wrong("noisy", Sprt(0, 50), 150) < 0.005


def test_the_ratio_is_that_of_the_likeliest_distributions() -> None:
    """For two outcomes there is only one distribution with the given mean."""
    pairs = np.array([3000.0, 0, 0, 0, 7000.0])
    expected = 3000 * math.log(0.4 / 0.5) + 7000 * math.log(0.6 / 0.5)
    found = Sprt(0, _elo_difference(0.6)).log_likelihood_ratios(pairs)
    assert float(found) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("score", [0.5, 0.7, 0.95])
@pytest.mark.parametrize("pairs", [10, 100])
def test_intervals_hold_the_truth_nineteen_times_in_twenty(score: float, pairs: int) -> None:
    random = np.random.default_rng(3)
    played = random.multinomial(pairs, of_mean("decided", score), 2000)
    held = 0
    for counts in played:
        seen = EloEstimate.from_pairs(counts)
        held += seen.low <= _elo_difference(score) <= seen.high
    assert held / len(played) > 0.93


def test_winning_everything_says_at_least_so_much() -> None:
    seen = EloEstimate.from_pairs([0, 0, 0, 0, 20])
    assert seen.elo == math.inf
    assert 200 < seen.low < 400
    assert seen.high == math.inf


@pytest.mark.parametrize("share", [(0.9, 0.05, 0.03, 0.01, 0.01), (0.01, 0.01, 0.03, 0.05, 0.9)])
@pytest.mark.parametrize("score", [0.3, 0.5, 0.7])
def test_the_tilted_distribution_has_the_mean_that_is_asked_for(
    share: tuple[float, ...], score: float
) -> None:
    tilted = np.array(share) * np.exp(_log_density_ratio(np.array(share), score))
    assert tilted.sum() == pytest.approx(1)
    assert tilted @ PAIR_SCORES == pytest.approx(score)


def test_bounds_that_are_no_test_are_refused() -> None:
    with pytest.raises(ValueError, match="Elo"):
        Sprt(20, 0)
    with pytest.raises(ValueError, match="alpha"):
        Sprt(0, 20, alpha=0.0)
    with pytest.raises(ValueError, match="not negative"):
        Sprt(0, 20).log_likelihood_ratios([1, 2, 3])
