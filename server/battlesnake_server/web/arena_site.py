"""Server of the arena's pages, in background threads of the arena's process."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy.engine import Engine

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Turn
from battlesnake_server.address_policy import open_listener, url_host
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.http.page_server import PageServer
from battlesnake_server.web import create_app
from battlesnake_server.web.access_control import access_hint, create_token
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.roster import Roster

NUM_THREADS = 24
"""Number of server threads.

Long polls of live games occupy at most half of these threads.
"""


class ArenaSite:
    """Server of the arena's pages.

    The constructor starts the server.

    Args:
        database: SQLAlchemy engine of the results database.
        roster: Snakes that visitors may play against and query.
        replays: Directory of the recorded games.
        host: Address to listen on.
        port: Port to listen on; 0 selects a free port.
        names: Additional host names that requests may use.
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
        replays: Path,
        host: str,
        port: int,
        names: Iterable[str] = (),
        *,
        token: str | None = None,
        league: LeagueConfig | None = None,
    ) -> None:
        names = list(names)
        token = token or create_token(host, names)
        self._broadcast = LiveGames()
        self._app = create_app(database, roster, self._broadcast, replays, token, league)
        listener = open_listener(host, port)
        self._server = PageServer(self._app, listener, names=[host, *names], threads=NUM_THREADS)
        self.address = f"http://{url_host(host)}:{self._server.port}/"
        self._server.start()
        sys.stderr.write(f"serving the arena at {self.address} (Ctrl+C to stop)\n")
        if token is not None:
            sys.stderr.write(access_hint(self.address, token))
        sys.stderr.flush()

    def on_game_event(self, game_id: str, event: Board | Turn | None) -> None:
        """Publish an event of a live game, as a `tournament.OnGameEvent` callback."""
        self._broadcast.publish_event(game_id, event)

    def wait(self) -> None:
        """Wait until the process is interrupted."""
        self._server.wait()

    def close(self) -> None:
        """Stop the server, the live games and the analyses."""
        self._broadcast.close()
        self._server.stop()
        self._app.extensions["analyses"].close()
