"""``battlesnake-gym completion SHELL``: the script that lets a shell complete commands and options.

It is made by shtab from the parsers of all commands; those whose extra is not installed are
completed by their names alone.
"""

from __future__ import annotations

import sys

import shtab

from battlesnake_gym import cli, snakes
from battlesnake_gym.command_line import Parser, refuse
from battlesnake_gym.rules import known_maps

HOW = {
    "bash": 'eval "$(battlesnake-gym completion bash)"  in ~/.bashrc',
    "zsh": "battlesnake-gym completion zsh > ~/.zfunc/_battlesnake-gym  with fpath+=~/.zfunc",
    "tcsh": "battlesnake-gym completion tcsh > ~/.complete; source ~/.complete",
}


def main(argv: list[str] | None = None) -> int:
    """Print the script; returns the exit status."""
    arguments = parser().parse_args(argv)
    whole, missing = _whole()
    if missing:
        told = f"without the options of {', '.join(missing)}, which are not installed here"
        refuse("battlesnake-gym completion", told)
    sys.stdout.write(shtab.complete(whole, arguments.shell) + "\n")
    return 0


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym completion",
        description="Print a script that lets a shell complete commands, options, snakes and maps.",
        epilog="\n\n".join(f"  {line}" for line in HOW.values()),
    )
    parser.add_argument("shell", choices=list(HOW), help="whose script")
    return parser


def _whole() -> tuple[Parser, list[str]]:
    """One parser with all commands, and the names of those that cannot be loaded."""
    whole = Parser(prog=cli.PROG)
    whole.add_argument("--version", action="store_true", help="what is installed")
    commands = whole.add_subparsers(dest="command")
    missing = []
    for name, command in cli.COMMANDS.items():
        own: list[Parser] = []
        try:
            own = [cli.load(name).parser()]
        except cli.MissingExtraError:
            missing.append(name)
        for one in own:
            _name_what_is_known(one)
        commands.add_parser(name, help=command.help, parents=own, add_help=not own)
    return whole, missing


def _name_what_is_known(parser: Parser) -> None:
    """Snakes and maps are not an option's choices (``minimax@400``, URLs), but worth offering."""
    known = {"map": list(known_maps()), "snake": snakes.names(), "against": snakes.names()}
    for action in parser._actions:
        names = known.get(action.dest.rstrip("s"), known.get(action.dest))
        if names and action.choices is None:
            action.choices = names
