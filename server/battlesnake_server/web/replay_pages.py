"""Pages of recorded games for the sites of the arena and of training runs.

The pages list and play the games, and return each position as text, JSON and image.
``battlesnake-gym game watch`` serves only these pages.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, render_template, url_for

from battlesnake_gym.boards import json_fields
from battlesnake_gym.replays.replay import ReplayError
from battlesnake_server import replay_json
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.replay_viewer import frame_stream, game_fetcher, game_urls
from battlesnake_server.replay_viewer.replay_library import Library, LibraryEntry
from battlesnake_server.web import pages
from battlesnake_server.web.pages import error_response, query_integer

REPLAYS_PER_PAGE = 24

_CARDS_TIMEOUT_S = 4.0
"""Maximum time that a page waits for the cards of new files, in seconds."""

_MAX_KNOWN_CARDS = 256

_UNREAD_MESSAGE = "not read yet; reload this page"

_known_cards: dict[LibraryEntry, ReplayCard] = {}
_reading = threading.Lock()
_fetching = threading.Lock()

blueprint = Blueprint("watch", __name__)


@dataclass(frozen=True, slots=True)
class ReplayCard:
    """Summary of a game for the list, or the error of a damaged file.

    Attributes:
        position: Last position (`replay_json.position`).
        winner: Id of the winner, or None.
    """

    entry: LibraryEntry
    position: dict[str, Any] | None = None
    winner: str | None = None
    error: str = ""


def add_replay_pages(
    app: Flask,
    roots: Sequence[Path],
    prefix: str = "/replays",
    address_policy: AddressPolicy | None = None,
    view_radius: int | None = None,
) -> None:
    """Add the pages of the games under ``roots`` to a site.

    Args:
        app: The site.
        roots: Files and directories of recorded games.
        prefix: Path of the pages.
        address_policy: Addresses from which visitors may fetch games; None uses the default policy.
        view_radius: View radius of games whose settings have none; None for no limit.
    """
    app.extensions["library"] = Library(roots, view_radius)
    app.extensions["address_policy"] = address_policy or AddressPolicy()
    app.register_blueprint(blueprint, url_prefix=prefix)


def create_app(
    roots: Sequence[Path],
    address_policy: AddressPolicy | None = None,
    view_radius: int | None = None,
) -> Flask:
    """Create an application that shows only the games under ``roots``.

    Args:
        roots: Files and directories of recorded games.
        address_policy: Addresses from which visitors may fetch games; None uses the default policy.
        view_radius: View radius of games whose settings have none; None for no limit.
    """
    app = pages.create_application("Replays")
    add_replay_pages(app, roots, "", address_policy, view_radius)
    return app


@blueprint.get("/")
def index() -> str:
    """Render one page of the list of games, newest game first."""
    entries = current_library().entries()
    pages = max(1, -(-len(entries) // REPLAYS_PER_PAGE))
    page = query_integer("page", 1, minimum=1, maximum=pages)
    shown = entries[(page - 1) * REPLAYS_PER_PAGE : page * REPLAYS_PER_PAGE]
    return render_template(
        "watch_list.html", cards=load_cards(shown), total=len(entries), page=page, pages=pages
    )


@blueprint.get("/replay/<path:key>")
def show(key: str) -> str:
    """Render the page that plays back one game."""
    return render_template("watch_game.html", key=_find_entry(key).key)


@blueprint.get("/data/<path:key>")
def data(key: str) -> Response:
    """Return the chunk of a game that starts at the frame ``?since=``.

    `frame_stream` defines the format.
    """
    entry = _find_entry(key)
    return frame_stream.respond(entry.path, entry.view_radius) or abort(404)


@blueprint.post("/fetch")
def fetch() -> Response:
    """Fetch a game into the first directory, and return the page of the game.

    The request field ``game`` is the id or the address of the game.
    """
    roots = [root for root in current_library().roots if root.is_dir()]
    if not roots:
        return error_response("this site shows no directory in which to save the game", 409)
    if not _fetching.acquire(blocking=False):
        return error_response("another game is being fetched; try again in a few seconds", 503)
    try:
        source = json_fields.string(pages.parse_body(), "game", "")
        path = roots[0] / f"{game_urls.find_engines(source)[1]}.jsonl.gz"
        if not path.exists():
            game_fetcher.fetch(source, current_app.extensions["address_policy"]).save(path)
    except (ValueError, OSError) as error:
        return error_response(error)
    finally:
        _fetching.release()
    key = next(entry.key for entry in current_library().entries() if entry.path == path)
    return jsonify(page=url_for("watch.show", key=key))


def load_cards(entries: Sequence[LibraryEntry]) -> list[ReplayCard]:
    """Return the cards of ``entries``.

    A thread reads new files, small files first, because reading a game of 30,000 turns lasts 30 s.
    The function waits for at most `_CARDS_TIMEOUT_S` seconds. The cards of unread files contain a
    message that suggests a reload. The thread reads the remaining files in the background.
    """
    found = {entry: card for entry in entries if (card := _known_cards.get(entry)) is not None}
    missing = sorted({*entries} - {*found}, key=lambda entry: entry.size)
    if missing:
        reader = threading.Thread(target=_read_cards, args=(missing, found), daemon=True)
        reader.start()
        reader.join(_CARDS_TIMEOUT_S)
    return [found.get(entry, ReplayCard(entry, error=_UNREAD_MESSAGE)) for entry in entries]


def _read_cards(entries: Sequence[LibraryEntry], found: dict[LibraryEntry, ReplayCard]) -> None:
    """Add the cards of ``entries`` to ``found``.

    No cards are added if another thread is still reading after `_CARDS_TIMEOUT_S` seconds.
    """
    if not _reading.acquire(timeout=_CARDS_TIMEOUT_S):
        return
    try:
        for entry in entries:
            found[entry] = _known_cards.get(entry) or _build_card(entry)
    finally:
        _reading.release()


def _build_card(entry: LibraryEntry) -> ReplayCard:
    """Build and cache the card of a file; the card of an unreadable file has an error."""
    try:
        last = entry.load().last
        winner = last.winner
        card = ReplayCard(entry, replay_json.position(last), winner.id if winner else None)
    except (OSError, MemoryError) as error:  # A later attempt may succeed.
        reason = str(error) or f"{entry.key} needs more memory than is available"
        return ReplayCard(entry, error=reason)
    except Exception as error:  # A damaged file must not break the list of games.
        reason = str(error) if isinstance(error, ReplayError) else f"cannot be read: {error!r}"
        card = ReplayCard(entry, error=reason)
    while len(_known_cards) >= _MAX_KNOWN_CARDS:
        del _known_cards[next(iter(_known_cards))]
    _known_cards[entry] = card
    return card


def current_library() -> Library:
    """Return the library of the current application."""
    return cast(Library, current_app.extensions["library"])


def _find_entry(key: str) -> LibraryEntry:
    """Return the entry with this key, or respond with status 404."""
    return current_library().find(key) or abort(
        404, "This game does not exist; its file may have been moved."
    )


def _find_file(key: str) -> tuple[Path, int | None]:
    """Return the file of a game, and the view radius if the game's settings have none."""
    entry = _find_entry(key)
    return entry.path, entry.view_radius


pages.add_game_pages(blueprint, "/{}/<path:key>", lambda key: _find_entry(key).load(), _find_file)
