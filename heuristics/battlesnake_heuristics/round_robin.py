"""Duels of all pairs of named snakes: a quick answer to "which snake is better?"."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_heuristics.rating.match import MatchSettings, play_game, points_of

_SEED, _SEED_STEP = 1, 10_007
"""Games lie this far apart in seeds: the food of turn t depends on seed + t alone."""


def duel_scores(names: Sequence[str], games: int, ruleset: str) -> dict[str, dict[str, float]]:
    """Duels of all pairs, each start in both seatings: each snake's share of the points against
    each other, a draw counting half, and under ``all`` in all its games. The best comes first."""
    points: dict[tuple[str, str], float] = defaultdict(float)
    duels = [(*pair, i) for pair in itertools.combinations(names, 2) for i in range(games)]
    for one, other, number in tqdm(duels, desc="duels", unit="game", disable=None):
        seats = (one, other) if number % 2 == 0 else (other, one)
        players = [partial(snakes.make, name) for name in seats]
        seed = _SEED + _SEED_STEP * (number // 2)
        last = play_game(MatchSettings(ruleset=ruleset), players, seed).last
        won = points_of((0, 1), [None if s.alive else s.eliminated_on for s in last.snakes])
        points[seats] += won
        points[seats[::-1]] += 1 - won
    shares = {
        name: {other: points[name, other] / games for other in names if other != name}
        for name in names
    }
    for row in shares.values():
        row["all"] = sum(row.values()) / len(row)
    return dict(sorted(shares.items(), key=lambda item: -item[1]["all"]))


def duel_table(shares: Mapping[str, Mapping[str, float]]) -> str:
    """What `duel_scores` returns, as text: a row a snake, a column an opponent."""
    lines = [" " * 12 + "".join(f"{name[:7]:>8}" for name in shares) + "     all"]
    for name, row in shares.items():
        cells = [f"{row[other]:8.0%}" if other in row else "       ." for other in shares]
        lines.append(f"{name:<12}{''.join(cells)}{row['all']:8.0%}")
    return "\n".join(lines)
