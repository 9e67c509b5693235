"""The command ``battlesnake-gym snakes``."""

from __future__ import annotations

import sys

from battlesnake_gym import snakes
from battlesnake_gym.common import command_line
from battlesnake_gym.rules import RULESETS
from battlesnake_heuristics.round_robin import format_duel_table, play_duels


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
            scores = play_duels(chosen, options.duels, options.ruleset)
    except (ValueError, OSError) as error:
        return command_line.print_error("battlesnake-gym snakes", error)
    if options.duels:
        if options.json:
            command_line.print_json(scores)
        else:
            sys.stdout.write(format_duel_table(scores))
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
