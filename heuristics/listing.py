"""``battlesnake-gym snakes``: who can play here."""

from __future__ import annotations

import argparse
import sys

from battlesnake_gym import snakes
from battlesnake_gym.rules import RULESETS
from battlesnake_gym.rules.state import Game
from heuristics.playing import duel_table


def main(argv: list[str] | None = None) -> int:
    """List the named snakes, or let them duel; returns the exit status."""
    options = _parser().parse_args(argv)
    chosen = options.names or snakes.names()
    if unknown := [name for name in chosen if name not in snakes.names()]:
        sys.stderr.write(
            f"battlesnake-gym snakes: unknown snake {unknown[0]!r}; "
            f"choose from {', '.join(snakes.names())}\n"
        )
        return 2
    if options.duels:
        game = Game(ruleset=options.ruleset)
        sys.stdout.write(duel_table(chosen, options.duels, game) + "\n")
        return 0
    width = max(map(len, chosen))
    for name in chosen:
        sys.stdout.write(f"{name:<{width}}  {snakes.description(name)}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="battlesnake-gym snakes",
        description="List the named snakes. With --duels every pair plays, and a table tells each "
        "row's share of the points against each column.",
        epilog="example: battlesnake-gym snakes hungry cautious territory --duels 10",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--duels", type=int, default=0, metavar="N", help="play N games a pair")
    parser.add_argument(
        "--ruleset",
        choices=sorted(RULESETS),
        default="standard",
        help="of the duels (default: %(default)s)",
    )
    return parser
