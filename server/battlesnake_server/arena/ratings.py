"""Weng-Lin ratings of snakes from their games (OpenSkill's Plackett-Luce model)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openskill.models import PlackettLuce

CI_95_Z_SCORE = 1.96
"""Half-width of a 95% confidence interval, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Rating:
    """A skill estimate: mean ``mu`` (initially 25) and standard deviation ``sigma``."""

    mu: float
    sigma: float

    @property
    def ci_low(self) -> float:
        """Lower end of the 95% confidence interval."""
        return self.mu - CI_95_Z_SCORE * self.sigma

    @property
    def ci_high(self) -> float:
        """Upper end of the 95% confidence interval."""
        return self.mu + CI_95_Z_SCORE * self.sigma


GameRanks = Sequence[tuple[str, int]]
"""The result of one game: (name, rank) of every snake.

Rank 0 is best, and equal ranks are ties.
"""


def rank_snakes(snakes: Sequence[tuple[str, bool, int]]) -> GameRanks:
    """Rank the snakes of one game, given as (name, alive, turn of elimination).

    Snakes that survived longer rank higher; snakes eliminated on the same turn tie.

    >>> rank_snakes([("a", False, 7), ("b", True, 0), ("c", False, 7)])
    [('a', 1), ('b', 0), ('c', 1)]
    """
    lasted = [float("inf") if alive else turn for _, alive, turn in snakes]
    order = sorted(set(lasted), reverse=True)
    return [(name, order.index(turns)) for (name, _, _), turns in zip(snakes, lasted, strict=True)]


class Ratings:
    """Ratings of all snakes, updated after every game."""

    def __init__(self) -> None:
        self._model = PlackettLuce()
        self._ratings: dict[str, Any] = {}

    def add_game(self, ranks: GameRanks) -> None:
        """Update the ratings with the result of one game.

        The best rank counts for a name in several seats. A game of one name does not change any
        rating.
        """
        best: dict[str, float] = {}
        for name, rank in ranks:
            best[name] = min(float(rank), best.get(name, rank))
            if name not in self._ratings:
                self._ratings[name] = self._model.rating(name=name)
        if len(best) < 2:
            return
        rated = self._model.rate([[self._ratings[name]] for name in best], [*best.values()])
        for name, (rating,) in zip(best, rated, strict=True):
            self._ratings[name] = rating

    def get(self, name: str) -> Rating:
        """Return a snake's rating, or the initial rating if the snake has no games."""
        rating = self._ratings.get(name) or self._model.rating()
        return Rating(rating.mu, rating.sigma)
