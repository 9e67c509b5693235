"""``battlesnake-gym game watch``: show replays in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import quote

from battlesnake_gym.common.command_line import (
    Parser,
    add_view_radius_option,
    plural,
    reports_errors,
)
from battlesnake_gym.replays.replay import Replay
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.replay_viewer import game_fetcher
from battlesnake_server.replay_viewer.replay_library import has_view_radius
from battlesnake_server.web import pages
from battlesnake_server.web.replay_pages import create_app

_DEFAULT_PORT = 8790


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Serve the games until interrupted; return 2 if the server cannot start."""
    command = parser()
    arguments = command.parse_args(argv)
    addresses = AddressPolicy.from_options(arguments)
    paths = [_resolve_path(source, arguments, addresses) for source in arguments.paths]
    if arguments.view_radius is not None and all(map(has_view_radius, paths)):
        command.reject_given(arguments, ["view_radius"], "on games with a view radius")
    app = create_app(paths, addresses, arguments.view_radius)
    games = app.extensions["library"].entries()
    # The browser directly opens the page of a single game.
    path = f"replay/{quote(games[0].key)}" if len(games) == 1 else ""
    return pages.serve(app, plural(len(games), "recorded game"), arguments, path)


def _resolve_path(source: str, options: argparse.Namespace, addresses: AddressPolicy) -> Path:
    """Return an existing file or directory, or the file of a fetched game.

    Raises:
        ValueError: If a file is not a recorded game.
    """
    path = Path(source)
    if path.is_file():
        Replay.stream(path)
    return game_fetcher.resolve_game(
        source, addresses, ruleset=options.ruleset, board_map=options.map
    )


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym game watch",
        description="Show recorded games in the browser: play, step and scrub through them, and "
        "inspect the snakes' decisions.",
        epilog="Reads replays of this project, the output files of the official CLI (.jsonl, "
        ".jsonl.gz), replays of Battlesnake Blackout, and games of arena.battlesnake.com. Example: "
        "battlesnake-gym game watch replays",
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="REPLAY", help="replay files, directories of replays, or game "
        "ids and URLs (fetched into the current directory)")  # fmt: skip
    address_policy.add_page_options(parser, _DEFAULT_PORT)
    add_view_radius_option(parser)
    add("--no-browser", action="store_true", help="do not open a browser")
    game_fetcher.add_options(parser)
    address_policy.add_options(parser, redirects=False)
    return parser
