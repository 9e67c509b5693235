"""Pages of the arena: ratings, live and recorded games, and a position editor."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator

from flask import Flask

from battlesnake_server.web import (
    engine_api,
    games_page,
    leaderboard,
    league_page,
    play_page,
    position_editor,
    replay_pages,
    snake_page,
)
from battlesnake_server.web.game_manager import Arena
from battlesnake_server.web.pages import Site, create_application

NUM_THREADS = 24
"""Number of server threads.

Long polls of live games occupy at most half of these threads.
"""


def create_app(arena: Arena) -> Flask:
    """Create the arena's Flask application."""
    parts = [leaderboard, games_page, snake_page, play_page, position_editor, engine_api]
    if arena.league is not None:
        parts.append(league_page)
    app = create_application("Arena", *(part.blueprint for part in parts))
    replay_pages.add_replay_pages(app, [arena.replays])
    app.extensions["arena"] = arena
    return app


@contextlib.contextmanager
def open_site(
    arena: Arena, options: argparse.Namespace, token: str | None = None
) -> Iterator[Site]:
    """Serve the arena's pages in background threads while the context is active.

    Args:
        arena: Arena to show.
        options: Parsed options of `address_policy.add_page_options`.
        token: Access token that every action requires; see `Site`.

    Raises:
        ValueError: If the port is in use.
    """
    site = Site(create_app(arena), options, token=token, threads=NUM_THREADS)
    with site, contextlib.closing(arena.broadcast):
        site.announce("the arena", sys.stderr)
        yield site
