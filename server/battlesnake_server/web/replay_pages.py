"""Recorded games in the browser: a part of the arena's pages and of those of training runs.

A list of the games, a page that plays one, and every position as text, JSON and picture, to be made
into a test or a board. ``battlesnake-gym game watch`` opens this part alone.
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

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, render_template, url_for

from battlesnake_gym.boards import json_fields
from battlesnake_gym.replays.replay import ReplayError
from battlesnake_server import replay_json
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.replay_viewer import (
    frame_stream,
    game_fetcher,
    game_urls,
    position_formats,
)
from battlesnake_server.replay_viewer.replay_library import Entry, Library, TooLittleMemoryError
from battlesnake_server.replay_viewer.what_if import WhatIfBusyError
from battlesnake_server.web import pages
from battlesnake_server.web.pages import error_response, number

PER_PAGE = 24

_CARD_READ_TIMEOUT_S = 10.0
"""How long the list reads files that it does not know; it shows the others when it is reloaded."""

_CARD_WAIT_S = 2.0
"""How long a list waits until it may read: one does at a time, so that the pages stay quick."""

UNREAD = "not read yet: others took long; reload this page"

_reading = threading.Lock()
_fetching = threading.Lock()

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


def mount(
    app: Flask, roots: Sequence[Path], prefix: str = "/replays", reach: AddressPolicy | None = None
) -> None:
    """Let the games under ``roots`` be a part of a site, which fetches others within ``reach``."""
    app.extensions["library"] = Library(roots)
    app.extensions["reach"] = reach or AddressPolicy()
    app.register_blueprint(blueprint, url_prefix=prefix)


def create_app(
    roots: Sequence[Path], token: str | None = None, reach: AddressPolicy | None = None
) -> Flask:
    """The application that shows the games under ``roots`` and nothing else.

    With a ``token`` only who has it may have them analysed, or others fetched. Raises
    ``ValueError`` where a root does not exist.
    """
    for root in roots:
        if not root.exists():
            raise ValueError(f"there is no file or folder {str(root)!r}; check the path")
    app = pages.application("Replays", token=token)
    mount(app, roots, "", reach)
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
    """A piece of the game, from the frame ``?since=`` on; see `battlesnake_server.replay_viewer.frame_stream`."""
    try:
        return frame_stream.answer(_entry(key).path) or abort(404)
    except ReplayError as error:
        return error_response(str(error), 422)


@blueprint.get("/turn/<int:turn>/<form>/<path:key>")
def position(turn: int, form: str, key: str) -> Response:
    """One position, in the forms of `battlesnake_server.replay_viewer.position_formats.answer`."""
    try:
        return position_formats.answer(_entry(key).load().board(turn), form)
    except ValueError as error:
        return error_response(str(error), 404)
    except WhatIfBusyError as error:
        return error_response(str(error), 503)


@blueprint.get("/analysis/<path:key>")
def analysis(key: str) -> Response:
    """How far the game is analysed, and what was found from the ``?since=``-th turn on."""
    return pages.analysis(_entry(key).path)


@blueprint.post("/analysis/<path:key>")
def analyse(key: str) -> Response:
    """Have the game analysed, in the background."""
    return pages.analyse(_entry(key).path)


@blueprint.post("/fetch")
def fetch() -> Response:
    """Fetch the game with the id or address ``game`` into the first folder, and show it."""
    roots = [root for root in _library().roots if root.is_dir()]
    if not roots:
        return error_response("no folder is shown here, so there is none to keep a game in", 409)
    if not _fetching.acquire(blocking=False):
        return error_response("another game is being fetched; try again in some seconds", 503)
    try:
        source = json_fields.string(pages.body(), "game", "")
        path = roots[0] / f"{game_urls.engines(source)[1]}.jsonl.gz"
        if not path.exists():
            game_fetcher.fetch(source, current_app.extensions["reach"]).save(path)
    except (ValueError, OSError) as error:
        return error_response(error)
    finally:
        _fetching.release()
    key = next(entry.key for entry in _library().entries() if entry.path == path)
    return jsonify(page=url_for("watch.show", key=key))


def cards(entries: Sequence[Entry]) -> list[ReplayCard]:
    """What is known of these games, after reading on for a while, unless others do that now."""
    reads = _reading.acquire(timeout=_CARD_WAIT_S)
    try:
        until = time.monotonic() + (_CARD_READ_TIMEOUT_S if reads else 0)
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
    game = replay_json.header(replay.first)
    picture = json.dumps({**game, "frame": replay_json.frame(last)}, allow_nan=False)
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
