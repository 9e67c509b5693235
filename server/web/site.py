"""The arena's pages on a port, beside whatever the process does."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from pathlib import Path

from sqlalchemy.engine import Engine
from werkzeug.serving import make_server

from battlesnake_gym.board import Board
from battlesnake_gym.replay import Turn
from server.web import create_app
from server.web.course import Broadcast
from server.web.roster import Roster


class Site:
    """Answers from its making on, in a thread of its own.

    Who is on the ``roster`` may be played against. Raises ``OSError`` where the port is taken.
    """

    def __init__(
        self,
        database: Engine,
        roster: Roster,
        replays: Path,
        host: str,
        port: int,
    ) -> None:
        self._broadcast = Broadcast()
        app = create_app(database, roster, self._broadcast, replays)
        with socket.create_server((host, port)) as listener:
            port = listener.getsockname()[1]
            # The server keeps a copy of the listening socket.
            self._server = make_server(host, port, app, threaded=True, fd=listener.fileno())
        self.address = f"http://{host}:{port}/"
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        sys.stderr.write(f"the arena is open at {self.address}  (Ctrl+C ends)\n")
        sys.stderr.flush()

    def announce(self, game_id: str, news: Board | Turn | None) -> None:
        """Show a game while it is played; see `tournament.Announce`."""
        self._broadcast.announce(game_id, news)

    def wait(self) -> None:
        """Return when interrupted."""
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
