"""The arena's pages for tests: a database with some games, and the application over it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from flask import Flask
from flask.testing import FlaskClient
from jinja2.bccache import Bucket, BytecodeCache

from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Turn
from battlesnake_server.arena.database import Database
from battlesnake_server.arena.stored_tournament import StoredTournament
from battlesnake_server.arena.tournament import TournamentSettings
from battlesnake_server.http.page_server import PageServer
from battlesnake_server.web import NUM_THREADS, create_app
from battlesnake_server.web.game_manager import Arena
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.roster import Roster

SETUP = TournamentSettings(
    ("hungry", "cautious", "NAME<b>=straight"), GameSpec(2, 7, 7, max_turns=80), timeout=2000
)
GAMES = 2


class CompiledTemplates(BytecodeCache):
    """Templates of all applications: most tests make their own, which would compile them again."""

    def __init__(self) -> None:
        self.codes: dict[str, CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self.codes.get(bucket.key + bucket.checksum)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.codes[bucket.key + bucket.checksum] = bucket.code


Flask.jinja_options = {"bytecode_cache": CompiledTemplates()}


@dataclass(frozen=True)
class Pages:
    """The application, the games that it is told of, and where everything is kept."""

    app: Flask
    broadcast: LiveGames
    database: Database
    folder: Path

    @property
    def client(self) -> FlaskClient:
        return self.app.test_client()


@contextlib.contextmanager
def serving(app: Flask, *, names: tuple[str, ...] = ()) -> Iterator[str]:
    """The application on a port for as long as the block lasts; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    with contextlib.ExitStack() as stack:
        if "analyses" in app.extensions:
            stack.callback(app.extensions["analyses"].close)
        server = stack.enter_context(PageServer(app, listener, names=names, threads=NUM_THREADS))
        if "arena" in app.extensions:
            stack.callback(app.extensions["arena"].broadcast.close)
        yield f"http://127.0.0.1:{server.port}"


def make(
    folder: Path,
    *invited: str,
    allow_urls: bool = False,
    games: int = GAMES,
    token: str | None = None,
) -> Pages:
    """Pages over a fresh database, after a small tournament where ``games`` are asked for."""
    database = Database(f"sqlite:///{folder / 'arena.sqlite'}")
    arena = Arena(database, Roster(invited, allow_urls=allow_urls), folder / "replays")
    app = create_app(arena)
    app.config["TOKEN"] = token
    pages = Pages(app, arena.broadcast, database, folder)
    if games:
        play(pages, games)
    return pages


def play(pages: Pages, games: int) -> None:
    """Play what is missing of a tournament of so many games of each pair."""
    tournament = StoredTournament.start_or_resume(pages.database, SETUP, resume=True)
    tournament.play_missing_games(games, jobs=1, replays=pages.folder / "replays")


def announce(broadcast: LiveGames, game_id: str, turns: int, *, end: bool = False) -> Board:
    """Let a game of two straight snakes be on, as far as some turns."""
    board = Board.from_text(
        "A < . . . .\n. . . . . .\n. . . . . .\n. . . . > B\nA: name=Ann\nB: name=Bob"
    )
    broadcast.publish_event(game_id, board.copy())
    for _ in range(turns):
        turn = Turn({"a": "down", "b": "up"}, latency={"a": 3.0, "b": 4.0}, shouts={"a": "hey"})
        turn.play(board)
        broadcast.publish_event(game_id, turn)
    if end:
        broadcast.publish_event(game_id, None)
    return board
