"""The command ``battlesnake-gym snakes``."""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.common import command_line
from battlesnake_gym.rules import RULESETS
from battlesnake_heuristics.rating.match import DUEL, MatchSettings, play_game, side0_points

_FIRST_SEED, _SEED_STEP = 1, 10_007
"""First seed, and difference between the seeds of consecutive start positions.

The difference is large, because the food on a turn depends on the sum of the seed and the turn.
"""


def main(argv: list[str] | None = None) -> int:
    """Print the list of built-in snakes, or play duels between them.

    Returns:
        The exit status.
    """
    command = parser()
    options = command.parse_args(argv)
    chosen = list(dict.fromkeys(options.names)) or snakes.names()
    try:
        if not options.duels:
            command.reject_given(options, ["ruleset"], "without --duels")
        descriptions = {name: snakes.description(name) for name in chosen}
        if options.duels and len(chosen) < 2:
            raise ValueError("--duels needs two or more snakes")
        if options.duels:
            for name in chosen:
                snakes.make(name)
            scores = _play_duels(chosen, options.duels, options.ruleset)
    except (ValueError, OSError) as error:
        return command_line.print_error("battlesnake-gym snakes", error)
    if options.duels:
        if options.json:
            command_line.print_json(scores)
        else:
            sys.stdout.write(_format_duel_table(scores))
        return 0
    if options.json:
        command_line.print_json([{"name": k, "description": v} for k, v in descriptions.items()])
        return 0
    width = max(map(len, chosen))
    for name, text in descriptions.items():
        shown = command_line.colorize(f"{name:<{width}}", "bold", sys.stdout)
        sys.stdout.write(f"{shown}  {text}\n")
    return 0


def parser() -> command_line.Parser:
    """Create the command-line parser."""
    parser = command_line.Parser(
        prog="battlesnake-gym snakes",
        description="List the built-in snakes. With --duels, every pair plays duels; the table "
        "contains the score of the row against the column.",
        epilog="Example: battlesnake-gym snakes hungry cautious territory --duels 10",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="snakes to list (default: all)")
    parser.add_argument(
        "--duels",
        type=command_line.positive,
        metavar="N",
        help="number of duels to play per pair of snakes",
    )
    parser.add_argument(
        "--ruleset", choices=sorted(RULESETS), default="standard", help="ruleset of the duels"
    )
    command_line.add_json_option(parser)
    return parser


def _play_duels(names: Sequence[str], games: int, ruleset: str) -> dict[str, dict[str, float]]:
    """Play duels between all pairs of snakes; return the scores by snake and opponent.

    Each start position is played twice, with the seats exchanged. A draw counts half. The best
    snake is first. The key ``all`` contains the score over all games of the snake.

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


def _format_duel_table(shares: Mapping[str, Mapping[str, float]]) -> str:
    """Format the result of `_play_duels` as a table.

    The table has one row per snake and one column per opponent.
    """
    rows = [("", *shares, "all")]
    for name, row in shares.items():
        cells = (f"{row[other]:.0%}" if other in row else "." for other in shares)
        rows.append((name, *cells, f"{row['all']:.0%}"))
    return command_line.align_columns(rows, right=range(1, len(rows) + 1))
