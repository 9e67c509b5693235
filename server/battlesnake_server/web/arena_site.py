"""Server of the arena's pages, in background threads of the arena's process."""

from __future__ import annotations

import argparse
import sys

from sqlalchemy.engine import Engine

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Turn
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.web import create_app
from battlesnake_server.web.access_control import create_token
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.pages import Site
from battlesnake_server.web.roster import Roster

NUM_THREADS = 24
"""Number of server threads.

Long polls of live games occupy at most half of these threads.
"""


class ArenaSite(Site):
    """Server of the arena's pages.

    The constructor starts the server.

    Args:
        database: SQLAlchemy engine of the results database.
        roster: Snakes that visitors may play against and query.
        options: Parsed options of `address_policy.add_page_options`, and ``replays``, the absolute
            path of the directory of the recorded games.
        token: Access token that every action requires. If the token is None and other machines can
            reach the server, the constructor creates and prints a token.
        league: League to show, or None.

    Raises:
        ValueError: If the port is in use.
    """

    def __init__(
        self,
        database: Engine,
        roster: Roster,
        options: argparse.Namespace,
        *,
        token: str | None = None,
        league: LeagueConfig | None = None,
    ) -> None:
        token = token or create_token(options.host, options.allow_host)
        self._broadcast = LiveGames()
        app = create_app(database, roster, self._broadcast, options.replays, token, league)
        super().__init__(app, options, threads=NUM_THREADS)
        self.announce("the arena", sys.stderr)

    def on_game_event(self, game_id: str, event: Board | Turn | None) -> None:
        """Publish an event of a live game, as a `tournament.OnGameEvent` callback."""
        self._broadcast.publish_event(game_id, event)

    def close(self) -> None:
        """Stop the live games, the server and the analyses."""
        self._broadcast.close()
        super().close()
