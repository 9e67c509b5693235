"""What all pages share: one application of parts, how requests are read and refused, the command.

Each part is a blueprint; the arena, recorded games, runs and puzzles are parts of the same site,
and those that a site has are in its navigation.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import sys
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from flask import Blueprint, Flask, Response, current_app, jsonify, render_template, request
from werkzeug.exceptions import HTTPException, NotFound

from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_server.http.page_server import MAX_REQUEST_BYTES, PageServer
from battlesnake_server.replay_viewer.analysis_queue import AnalysisQueue, BusyError
from battlesnake_server.web import access_control

_MIN_COMPRESSED_BYTES = 1024
"""Bytes of an answer below which compressing is not worth it."""

_COMPRESSED = ("text/", "application/json", "application/javascript", "image/svg+xml")

_MAX_QUERY_INT = 2**31 - 1
"""The largest number that an address may hold: what every database takes for an id."""


_NAVIGATION = (
    ("league.index", "League"),
    ("leaderboard.index", "Leaderboard"),
    ("games.live", "Live"),
    ("games.index", "Games"),
    ("runs.index", "Runs"),
    ("watch.index", "Replays"),
    ("play.index", "Play"),
    ("lab.index", "Lab"),
)
"""The pages that lead to all others, as far as a site has them."""


def application(brand: str, *parts: Blueprint, token: str | None = None) -> Flask:
    """An application of these parts, whose pages load nothing from elsewhere.

    ``brand`` is what it is called. With a ``token`` only who has it may do more than look.
    """
    app = Flask("battlesnake_server")  # whose folders hold the templates and the board component
    app.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    app.extensions["analyses"] = AnalysisQueue()
    for part in parts:
        app.register_blueprint(part)
    app.context_processor(lambda: {"brand": brand, "navigation": _navigation()})
    app.register_error_handler(404, _not_found)
    access_control.require_token(app, token)
    app.after_request(_set_security_headers)
    app.after_request(_compress)
    return app


def _navigation() -> list[tuple[str, str]]:
    return [page for page in _NAVIGATION if page[0] in current_app.view_functions]


def _not_found(error: NotFound) -> tuple[str, int]:
    """A page for addresses that lead nowhere."""
    unknown = error.description == NotFound.description
    return missing("There is no such page here." if unknown else str(error.description))


def missing(why: str) -> tuple[str, int]:
    """The page that says why there is nothing to show."""
    return render_template("missing.html", why=why), 404


def _set_security_headers(response: Response) -> Response:
    """Let browsers refuse anything that these pages do not hold themselves."""
    kinds = ("script", "style", "img", "connect")
    sources = "; ".join(f"{kind}-src 'self'" for kind in kinds)
    response.headers["Content-Security-Policy"] = (
        f"default-src 'none'; {sources}; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-cache"
    return response


def _compress(response: Response) -> Response:
    """The response, compressed where its kind, its size and its receiver allow that."""
    if (
        response.status_code != 200
        or not (response.mimetype or "").startswith(_COMPRESSED)
        or "Content-Encoding" in response.headers
        or request.accept_encodings["gzip"] <= 0
    ):
        return response
    response.direct_passthrough = False
    content = response.get_data()
    if len(content) >= _MIN_COMPRESSED_BYTES:
        response.set_data(gzip.compress(content, 6, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response


def body() -> dict[str, Any]:
    """The JSON object that was sent; raises `BoardError` where it is not one.

    Only a request that says it is JSON is read: no other site's page can send one unasked.
    """
    if not request.is_json:
        raise BoardError("request must have the content type application/json")
    try:
        sent = request.get_json()
    except (HTTPException, RecursionError) as error:
        raise BoardError("request is not JSON") from error
    if not isinstance(sent, dict):
        raise BoardError(f"request must be a JSON object, got {type(sent).__name__}")
    return sent


def number(name: str, usual: int, *, least: int = 0, most: int = _MAX_QUERY_INT) -> int:
    """The whole number ``?name=`` of the current request, brought into its bounds."""
    return min(max(least, request.args.get(name, usual, int)), most)


def error_response(error: Exception | str, status: int = 400) -> Response:
    """An answer that says what was wrong, as JSON for the page's scripts."""
    response = jsonify(error=str(error))
    response.status_code = status
    return response


def analyses() -> AnalysisQueue:
    """Who looks into the games of the current application."""
    return cast(AnalysisQueue, current_app.extensions["analyses"])


def analysis(game: Path) -> Response:
    """How far a game is analysed, and what was found from the ``?since=``-th turn on."""
    return jsonify(analyses().status_json(game, number("since", 0)))


def analyse(game: Path) -> Response:
    """Have a game analysed, in the background."""
    try:
        body()
        analyses().start(game)
    except BoardError as error:
        return error_response(error)
    except BusyError as error:
        return error_response(error, 503)
    return jsonify(analyses().status_json(game))


def show(
    app: Flask,
    listener: socket.socket,
    what: str,
    *,
    host: str = "127.0.0.1",
    names: Iterable[str] = (),
    path: str = "",
    open_browser: bool,
) -> int:
    """Answer until interrupted; ``what`` is printed with the address, which may be opened.

    Requests may name this machine as one of ``names``. What is being analysed at the end is given
    up.
    """
    server = PageServer(app, listener, names=[host, *names])
    server.start()
    address = f"http://{host}:{server.port}/{path}"
    try:
        with contextlib.suppress(KeyboardInterrupt):  # the end, from the first line on
            sys.stdout.write(f"{what} at {address}  (Ctrl+C ends)\n")
            if (token := app.config["TOKEN"]) is not None:
                sys.stdout.write(access_control.access_hint(address, token))
            sys.stdout.flush()
            if open_browser:
                webbrowser.open(address)
            server.wait()
    finally:
        server.stop()
        app.extensions["analyses"].close()
    return 0
