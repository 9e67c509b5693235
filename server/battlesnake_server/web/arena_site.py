"""The arena's pages on a port, beside whatever the process does."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy.engine import Engine

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Turn
from battlesnake_server.address_policy import open_listener
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.http.page_server import PageServer
from battlesnake_server.web import create_app
from battlesnake_server.web.access_control import access_hint, token_for
from battlesnake_server.web.live_games import Broadcast
from battlesnake_server.web.roster import Roster

THREADS = 24
"""For answers; half of them at most wait for the turns of live games (`games.MOST_WAITING`)."""


class Site:
    """Answers from its creation on, in threads of its own.

    Snakes on the ``roster`` may be played against; requests may name this machine as one of
    ``names``. Where others can reach it, by ``host`` or by such a name, a visitor needs a token,
    which is printed, to do more than look; a ``token`` that is given is needed everywhere. With a
    ``league`` the pages show it. Raises ``OSError`` where the port is taken.
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
        token = token or token_for(host, names)
        self._broadcast = Broadcast()
        self._app = create_app(database, roster, self._broadcast, replays, token, league)
        listener = open_listener(host, port)
        self._server = PageServer(self._app, listener, names=[host, *names], threads=THREADS)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.port}/"
        self._server.start()
        sys.stderr.write(f"the arena is open at {self.address}  (Ctrl+C ends)\n")
        if token is not None:
            sys.stderr.write(access_hint(self.address, token))
        sys.stderr.flush()

    def announce(self, game_id: str, news: Board | Turn | None) -> None:
        """Show a game while it is played; see `tournament.OnGameEvent`."""
        self._broadcast.announce(game_id, news)

    def wait(self) -> None:
        """Return when interrupted."""
        self._server.wait()

    def close(self) -> None:
        """Stop answering."""
        self._broadcast.close()
        self._server.stop()
        self._app.extensions["analyses"].close()
