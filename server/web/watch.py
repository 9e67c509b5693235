"""``battlesnake-gym watch``: recorded games in the browser.

A small Flask application on this machine: a list of the games, a page that plays one, and every
position as text, JSON and picture, to be made into a test or a board. The pages load nothing from
elsewhere.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, render_template, request

from battlesnake_gym.command_line import Parser, refuse
from battlesnake_gym.replay import ReplayError
from server import frames
from server.addresses import listen
from server.replays import analyses, film, positions
from server.replays.analyses import Analyses
from server.replays.library import Entry, Library, TooLittleMemoryError
from server.replays.what_if import BusyError
from server.web import pages
from server.web.pages import number, refusal
from server.web.visitors import is_loopback

PER_PAGE = 24
DEFAULT_PORT = 8790

READING_SECONDS = 10.0
"""How long the list reads files that it does not know; it shows the others when it is reloaded."""

ONLY_LOOK = (
    "looking is free, but games are analysed only where `watch` listens on this machine's own "
    "address; run `battlesnake-gym analyse` there"
)

UNREAD = "not read yet: others took long; reload this page"

blueprint = Blueprint("watch", __name__)


@dataclass(frozen=True, slots=True)
class Card:
    """What the list tells of one game (``winner`` is an id); of a damaged file its ``error``.

    ``game`` is what `frames.header` tells, ``picture`` the same with the last position, as JSON.
    """

    key: str
    when: str
    turns: int = 0
    game: dict[str, Any] | None = None
    out: tuple[bool, ...] = ()
    picture: str = ""
    winner: str | None = None
    error: str = ""


def create_app(roots: Sequence[Path], *, may_analyse: bool = True) -> Flask:
    """The application that shows the games under ``roots``.

    With ``may_analyse`` who looks may have them analysed. Raises ``ValueError`` where a root does
    not exist.
    """
    app = pages.application(blueprint)
    app.extensions["library"] = Library(roots)
    app.extensions["analyses"] = Analyses()
    app.config["MAY_ANALYSE"] = may_analyse
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
    may_analyse = current_app.config["MAY_ANALYSE"]
    return render_template("watch_game.html", key=_entry(key).key, may_analyse=may_analyse)


@blueprint.get("/data/<path:key>")
def data(key: str) -> Response:
    """A piece of the game, from the frame ``?since=`` on; see `server.replays.film`."""
    try:
        return film.answer(_entry(key).path) or abort(404)
    except ReplayError as error:
        return refusal(str(error), 422)


@blueprint.get("/turn/<int:turn>/<form>/<path:key>")
def position(turn: int, form: str, key: str) -> Response:
    """One position; `server.replays.positions.answer` tells in which forms."""
    try:
        return positions.answer(_entry(key).load().board(turn), form)
    except ValueError as error:
        return refusal(str(error), 404)
    except BusyError as error:
        return refusal(str(error), 503)


@blueprint.get("/analysis/<path:key>")
def analysis(key: str) -> Response:
    """How far the game is analysed, and what was found from the ``?since=``-th turn on."""
    return jsonify(_analyses().tell(_entry(key).path, number("since", 0)))


@blueprint.post("/analysis/<path:key>")
def analyse(key: str) -> Response:
    """Have the game analysed, in the background."""
    entry = _entry(key)
    if not current_app.config["MAY_ANALYSE"]:
        return refusal(ONLY_LOOK, 403)
    if not request.is_json:  # which no other site's page can send unasked
        return refusal("request must have the content type application/json", 400)
    try:
        _analyses().start(entry.path)
    except analyses.BusyError as error:
        return refusal(str(error), 503)
    return jsonify(_analyses().tell(entry.path))


@blueprint.app_errorhandler(404)
def not_found(error: Exception) -> tuple[str, int]:
    """A page for addresses that lead nowhere."""
    return render_template("watch_missing.html"), 404


def cards(entries: Sequence[Entry]) -> list[Card]:
    """What is known of these games, after reading on for a while."""
    until = time.monotonic() + READING_SECONDS
    return [
        _card(entry) if time.monotonic() < until else Card(entry.key, _when(entry), error=UNREAD)
        for entry in entries
    ]


def _card(entry: Entry) -> Card:
    try:
        return _read_card(entry)
    except (TooLittleMemoryError, OSError, MemoryError) as error:  # may be otherwise next time
        why = str(error) or f"{entry.key} needs more memory than there is now"
        return Card(entry.key, _when(entry), error=why)


@functools.lru_cache(maxsize=256)
def _read_card(entry: Entry) -> Card:
    try:
        replay = entry.load()
    except TooLittleMemoryError:
        raise
    except ReplayError as error:
        return Card(entry.key, _when(entry), error=str(error))
    last = replay.last
    winner = last.winner
    game = frames.header(replay.first)
    picture = json.dumps({**game, "frame": frames.frame(last)}, allow_nan=False)
    out = tuple(not snake.alive for snake in last.snakes)
    return Card(
        entry.key, _when(entry), last.turn, game, out, picture, winner.id if winner else None
    )


def _when(entry: Entry) -> str:
    return datetime.fromtimestamp(entry.modified).strftime("%Y-%m-%d %H:%M")


def _library() -> Library:
    return cast(Library, current_app.extensions["library"])


def _analyses() -> Analyses:
    return cast(Analyses, current_app.extensions["analyses"])


def _entry(key: str) -> Entry:
    return _library().find(key) or abort(404)


# --- the command --------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Serve the games until interrupted; returns 2 where that cannot begin."""
    arguments = parser().parse_args(argv)
    try:
        app = create_app(arguments.paths, may_analyse=is_loopback(arguments.host))
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
