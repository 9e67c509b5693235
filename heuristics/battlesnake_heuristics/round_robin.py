"""Duels between all pairs of snakes, for a quick comparison."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.common.command_line import align_columns
from battlesnake_heuristics.rating.match import DUEL, MatchSettings, play_game, side0_points

_FIRST_SEED, _SEED_STEP = 1, 10_007
"""First seed, and difference between the seeds of consecutive start positions.

The difference is large, because the food on a turn depends on the sum of the seed and the turn.
"""


def play_duels(names: Sequence[str], games: int, ruleset: str) -> dict[str, dict[str, float]]:
    """Play duels between all pairs of snakes.

    Each start position is played twice, with the seats exchanged.

    Args:
        names: Snakes to compare.
        games: Number of games per pair.
        ruleset: Ruleset of the games.

    Returns:
        The scores of each snake by opponent, best snake first. The key ``all`` contains the score
        over all games of the snake. A draw counts half.

    Raises:
        ValueError: If a snake cannot play; the message names the snake.
    """
    points: dict[tuple[str, str], float] = defaultdict(float)
    settings = MatchSettings(replace(DUEL, ruleset=ruleset))
    duels = [(*pair, i) for pair in itertools.combinations(names, 2) for i in range(games)]
    for one, other, number in tqdm(duels, desc="duels", unit="game", disable=None):
        seats = (one, other) if number % 2 == 0 else (other, one)
        players = [partial(snakes.make_named, name) for name in seats]
        seed = _FIRST_SEED + _SEED_STEP * (number // 2)
        last = play_game(settings, players, seed).last
        won = side0_points((0, 1), [None if s.alive else s.eliminated_on for s in last.snakes])
        points[seats] += won
        points[seats[::-1]] += 1 - won
    shares = {
        name: {other: points[name, other] / games for other in names if other != name}
        for name in names
    }
    for row in shares.values():
        row["all"] = sum(row.values()) / len(row)
    return dict(sorted(shares.items(), key=lambda item: -item[1]["all"]))


def format_duel_table(shares: Mapping[str, Mapping[str, float]]) -> str:
    """Format the result of `play_duels` as a table.

    The table has one row per snake and one column per opponent.
    """
    rows = [("", *shares, "all")]
    for name, row in shares.items():
        cells = (f"{row[other]:.0%}" if other in row else "." for other in shares)
        rows.append((name, *cells, f"{row['all']:.0%}"))
    return align_columns(rows, right=range(1, len(rows) + 1))
