"""Pages of the arena: ratings, live and recorded games, and a position editor."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from flask import Flask

from battlesnake_server.arena.database import Database
from battlesnake_server.arena.league_config import LeagueConfig
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
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.pages import Site, create_application
from battlesnake_server.web.roster import Roster

NUM_THREADS = 24
"""Number of server threads.

Long polls of live games occupy at most half of these threads.
"""


def create_app(
    database: Database,
    roster: Roster,
    broadcast: LiveGames,
    replays: Path,
    league: LeagueConfig | None = None,
) -> Flask:
    """Create the arena's Flask application.

    Args:
        database: The results database.
        roster: Snakes that visitors may play against and query.
        broadcast: Live games, including the games that visitors start.
        replays: Directory of recorded games, including the games of visitors.
        league: League to show on its own page, or None.
    """
    parts = [leaderboard, games_page, snake_page, play_page, position_editor, engine_api]
    if league is not None:
        parts.append(league_page)
    app = create_application("Arena", *(part.blueprint for part in parts))
    replay_pages.add_replay_pages(app, [replays])
    app.extensions["arena"] = Arena(database, roster, broadcast, replays, league)
    return app


@contextlib.contextmanager
def open_site(
    database: Database,
    roster: Roster,
    broadcast: LiveGames,
    options: argparse.Namespace,
    *,
    token: str | None = None,
    league: LeagueConfig | None = None,
) -> Iterator[Site]:
    """Serve the arena's pages in background threads while the context is active.

    Args:
        database: The results database.
        roster: Snakes that visitors may play against and query.
        broadcast: Live games.
        options: Parsed options of `address_policy.add_page_options`, and ``replays``, the absolute
            path of the directory of the recorded games.
        token: Access token that every action requires; see `Site`.
        league: League to show, or None.

    Raises:
        ValueError: If the port is in use.
    """
    app = create_app(database, roster, broadcast, options.replays, league)
    site = Site(app, options, token=token, threads=NUM_THREADS)
    with site, contextlib.closing(broadcast):
        site.announce("the arena", sys.stderr)
        yield site
