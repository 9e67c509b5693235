"""``battlesnake-gym game watch``: recorded games in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from battlesnake_gym.common.command_line import Parser, print_error
from battlesnake_gym.replays.replay import Replay
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy, open_listener
from battlesnake_server.replay_viewer import game_fetcher, game_urls
from battlesnake_server.web import pages
from battlesnake_server.web.access_control import token_for
from battlesnake_server.web.replay_pages import create_app

_DEFAULT_PORT = 8790


def main(argv: list[str] | None = None) -> int:
    """Serve the games until interrupted; returns 2 where that cannot begin."""
    arguments = parser().parse_args(argv)
    try:
        token = token_for(arguments.host, arguments.allow_host)
        reach = address_policy.from_options(arguments)
        paths = [_path(source, arguments, reach) for source in arguments.paths]
        app = create_app(paths, token, reach)
        listener = open_listener(arguments.host, arguments.port)
    except ValueError as error:
        return print_error("battlesnake-gym game watch", error)
    games = app.extensions["library"].entries()
    return pages.show(
        app,
        listener,
        f"{len(games)} recorded games",
        host=arguments.host,
        names=arguments.allow_host,
        path=f"replay/{games[0].key}" if len(games) == 1 else "",  # which is opened at once
        open_browser=not arguments.no_browser,
    )


def _path(source: str, options: argparse.Namespace, reach: AddressPolicy) -> Path:
    """The file or folder of this name, or the file of the game with this id or address.

    Raises ``ValueError`` for a file that is no recorded game.
    """
    path = Path(source)
    if path.is_file():
        Replay.stream(path)
    chosen = options.ruleset or options.map
    if not chosen and (path.exists() or not game_urls.is_address(source)):
        return path
    return game_fetcher.resolve_game(source, reach, ruleset=options.ruleset, board_map=options.map)


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym game watch",
        description="Show recorded games in the browser: play, step, scrub, and look into what the "
        "snakes thought.",
        epilog="Reads our replays and the output files of the official command line (.jsonl, "
        ".jsonl.gz), and games of arena.battlesnake.com. Example: "
        "battlesnake-gym game watch replays",
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="FILE_OR_FOLDER", help="recorded games, folders of them, and "
        "games by id or address, which are fetched and kept here")  # fmt: skip
    address_policy.add_page_options(parser, _DEFAULT_PORT)
    add("--no-browser", action="store_true", help="only serve; open no browser")
    game_fetcher.add_options(parser)
    return parser
