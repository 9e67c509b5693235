"""Recorded games in the browser: a part of the arena's pages and of those of training runs.

A list of the games, a page that plays one, and every position as text, JSON and picture, to be made
into a test or a board. ``battlesnake-gym watch`` opens this part alone.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from flask import Blueprint, Flask, Response, abort, current_app, render_template

from battlesnake_gym.common.command_line import Parser, refuse
from battlesnake_gym.records.replay import ReplayError
from battlesnake_server import frames
from battlesnake_server.addresses import listen
from battlesnake_server.replays import film, positions
from battlesnake_server.replays.library import Entry, Library, TooLittleMemoryError
from battlesnake_server.replays.what_if import WhatIfBusyError
from battlesnake_server.web import pages
from battlesnake_server.web.pages import number, refusal
from battlesnake_server.web.visitors import token_for

PER_PAGE = 24
DEFAULT_PORT = 8790

READING_SECONDS = 10.0
"""How long the list reads files that it does not know; it shows the others when it is reloaded."""

WAITING_SECONDS = 2.0
"""How long a list waits until it may read: one does at a time, so that the pages stay quick."""

UNREAD = "not read yet: others took long; reload this page"

_reading = threading.Lock()

blueprint = Blueprint("watch", __name__)


@dataclass(frozen=True, slots=True)
class ReplayCard:
    """What the list shows of one game (``winner`` is an id); of a damaged file its ``error``.

    ``game`` is what `frames.header` returns, ``picture`` the same with the last position, as JSON.
    """

    key: str
    when: str
    turns: int = 0
    game: dict[str, Any] | None = None
    out: tuple[bool, ...] = ()
    picture: str = ""
    winner: str | None = None
    error: str = ""


def mount(app: Flask, roots: Sequence[Path], prefix: str = "/replays") -> None:
    """Let the games under ``roots`` be a part of a site."""
    app.extensions["library"] = Library(roots)
    app.register_blueprint(blueprint, url_prefix=prefix)


def create_app(roots: Sequence[Path], token: str | None = None) -> Flask:
    """The application that shows the games under ``roots`` and nothing else.

    With a ``token`` only who has it may have them analysed. Raises ``ValueError`` where a root does
    not exist.
    """
    for root in roots:
        if not root.exists():
            raise ValueError(f"there is no file or folder {str(root)!r}; check the path")
    app = pages.application("Replays", token=token)
    mount(app, roots, prefix="")
    return app


@blueprint.get("/")
def index() -> str:
    """The list of games, a page at a time, the newest first."""
    entries = _library().entries()
    pages = max(1, -(-len(entries) // PER_PAGE))
    page = number("page", 1, least=1, most=pages)
    shown = entries[(page - 1) * PER_PAGE : page * PER_PAGE]
    return render_template(
        "watch_list.html",
        cards=cards(shown),
        total=len(entries),
        page=page,
        pages=pages,
    )


@blueprint.get("/replay/<path:key>")
def show(key: str) -> str:
    """The page that plays one game."""
    return render_template("watch_game.html", key=_entry(key).key)


@blueprint.get("/data/<path:key>")
def data(key: str) -> Response:
    """A piece of the game, from the frame ``?since=`` on; see `battlesnake_server.replays.film`."""
    try:
        return film.answer(_entry(key).path) or abort(404)
    except ReplayError as error:
        return refusal(str(error), 422)


@blueprint.get("/turn/<int:turn>/<form>/<path:key>")
def position(turn: int, form: str, key: str) -> Response:
    """One position, in the forms of `battlesnake_server.replays.positions.answer`."""
    try:
        return positions.answer(_entry(key).load().board(turn), form)
    except ValueError as error:
        return refusal(str(error), 404)
    except WhatIfBusyError as error:
        return refusal(str(error), 503)


@blueprint.get("/analysis/<path:key>")
def analysis(key: str) -> Response:
    """How far the game is analysed, and what was found from the ``?since=``-th turn on."""
    return pages.analysis(_entry(key).path)


@blueprint.post("/analysis/<path:key>")
def analyse(key: str) -> Response:
    """Have the game analysed, in the background."""
    return pages.analyse(_entry(key).path)


def cards(entries: Sequence[Entry]) -> list[ReplayCard]:
    """What is known of these games, after reading on for a while, unless others do that now."""
    reads = _reading.acquire(timeout=WAITING_SECONDS)
    try:
        until = time.monotonic() + (READING_SECONDS if reads else 0)
        return [
            _card(one)
            if time.monotonic() < until
            else ReplayCard(one.key, _when(one), error=UNREAD)
            for one in entries
        ]
    finally:
        if reads:
            _reading.release()


def _card(entry: Entry) -> ReplayCard:
    try:
        return _read_card(entry)
    except (TooLittleMemoryError, OSError, MemoryError) as error:  # may be otherwise next time
        why = str(error) or f"{entry.key} needs more memory than there is now"
        return ReplayCard(entry.key, _when(entry), error=why)


@functools.lru_cache(maxsize=256)
def _read_card(entry: Entry) -> ReplayCard:
    try:
        replay = entry.load()
    except TooLittleMemoryError:
        raise
    except ReplayError as error:
        return ReplayCard(entry.key, _when(entry), error=str(error))
    last = replay.last
    winner = last.winner
    game = frames.header(replay.first)
    picture = json.dumps({**game, "frame": frames.frame(last)}, allow_nan=False)
    out = tuple(not snake.alive for snake in last.snakes)
    return ReplayCard(
        entry.key, _when(entry), last.turn, game, out, picture, winner.id if winner else None
    )


def _when(entry: Entry) -> str:
    return datetime.fromtimestamp(entry.modified).strftime("%Y-%m-%d %H:%M")


def _library() -> Library:
    return cast(Library, current_app.extensions["library"])


def _entry(key: str) -> Entry:
    return _library().find(key) or abort(404, "There is no such game here. It may have been moved.")


# --- the command --------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Serve the games until interrupted; returns 2 where that cannot begin."""
    arguments = parser().parse_args(argv)
    try:
        token = token_for(arguments.host, arguments.allow_host)
        app = create_app(arguments.paths, token)
        listener = listen(arguments.host, arguments.port)
    except ValueError as error:
        return refuse("battlesnake-gym watch", error)
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


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym watch",
        description="Show recorded games in the browser: play, step, scrub, and look into what the "
        "snakes thought.",
        epilog="Reads our replays and the output files of the official command line (.jsonl, "
        ".jsonl.gz). Example: battlesnake-gym watch replays",
    )
    add = parser.add_argument
    add("paths", type=Path, nargs="+", metavar="FILE_OR_FOLDER", help="recorded games")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--allow-host", action="append", default=[], metavar="NAME",
        help="a host name by which the pages may be asked for, besides addresses and this "
        "machine's own")  # fmt: skip
    add("--port", type=int, default=DEFAULT_PORT, help="0: any free one")
    add("--no-browser", action="store_true", help="only serve; open no browser")
    return parser
