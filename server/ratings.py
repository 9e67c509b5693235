"""How strong the snakes are: Weng-Lin ratings (OpenSkill's Plackett-Luce) from their games."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openskill.models import PlackettLuce

CONFIDENCE = 1.96
"""Standard deviations on both sides of a rating that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Rating:
    """``mu`` is the estimated strength (25 at first), ``sigma`` how uncertain it is."""

    mu: float
    sigma: float

    @property
    def low(self) -> float:
        """Lower end of the 95 % confidence interval."""
        return self.mu - CONFIDENCE * self.sigma

    @property
    def high(self) -> float:
        """Upper end of the 95 % confidence interval."""
        return self.mu + CONFIDENCE * self.sigma


Placing = Sequence[tuple[str, int]]
"""One game: every snake with its rank; 0 is best, equal ranks are ties."""


def rank(snakes: Sequence[tuple[str, bool, int]]) -> Placing:
    """Rank the snakes of one game, given as (name, alive, turn of elimination).

    Who lived longer stands higher; who died on the same turn shares a rank.

    >>> rank([("a", False, 7), ("b", True, 0), ("c", False, 7)])
    [('a', 1), ('b', 0), ('c', 1)]
    """
    lasted = [float("inf") if alive else turn for _, alive, turn in snakes]
    order = sorted(set(lasted), reverse=True)
    return [(name, order.index(turns)) for (name, _, _), turns in zip(snakes, lasted, strict=True)]


def rate(games: Iterable[Placing]) -> dict[str, Rating]:
    """Rate all snakes from their games, played in this order; games of one snake tell nothing."""
    model = PlackettLuce()
    ratings = {}
    for placing in games:
        for name, _ in placing:
            if name not in ratings:
                ratings[name] = model.rating(name=name)
        if len(placing) < 2:
            continue
        teams = [[ratings[name]] for name, _ in placing]
        rated = model.rate(teams, ranks=[float(rank) for _, rank in placing])
        for (name, _), (rating,) in zip(placing, rated, strict=True):
            ratings[name] = rating
    return {name: Rating(rating.mu, rating.sigma) for name, rating in ratings.items()}
