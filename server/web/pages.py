"""What all pages share: one application of parts, how requests are read and refused, the command.

Each part is a blueprint; the arena, recorded games, runs and puzzles are parts of the same site.
"""

from __future__ import annotations

import gzip
import socket
import sys
import webbrowser
from collections.abc import Iterable
from typing import Any

from flask import Blueprint, Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from battlesnake_gym.json_fields import BoardError
from server.web.page_server import LARGEST_REQUEST, PageServer

LEAST = 1024
"""Bytes of an answer below which compressing is not worth it."""

COMPRESSED = ("text/", "application/json", "application/javascript", "image/svg+xml")

MOST = 2**31 - 1
"""The largest number that an address may hold: what every database takes for an id."""


def application(*parts: Blueprint) -> Flask:
    """An application of these parts, whose pages load nothing from elsewhere."""
    app = Flask("server")  # whose folders hold the templates and the board component
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_REQUEST
    for part in parts:
        app.register_blueprint(part)
    app.after_request(_keep_to_this_server)
    app.after_request(_compress)
    return app


def _keep_to_this_server(response: Response) -> Response:
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
        or not (response.mimetype or "").startswith(COMPRESSED)
        or "Content-Encoding" in response.headers
        or request.accept_encodings["gzip"] <= 0
    ):
        return response
    response.direct_passthrough = False
    content = response.get_data()
    if len(content) >= LEAST:
        response.set_data(gzip.compress(content, 6, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response


def body() -> dict[str, Any]:
    """The JSON object that was sent; raises `BoardError` where it is none.

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


def number(name: str, usual: int, *, least: int = 0, most: int = MOST) -> int:
    """The whole number ``?name=`` of the current request, brought into its bounds."""
    return min(max(least, request.args.get(name, usual, int)), most)


def refusal(error: Exception | str, status: int = 400) -> Response:
    """An answer that says what was wrong, as JSON for the page's scripts."""
    response = jsonify(error=str(error))
    response.status_code = status
    return response


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
    """Answer until interrupted; ``what`` is told with the address, which may be opened.

    Requests may name this machine as one of ``names``. What is being analysed then is given up.
    """
    server = PageServer(app, listener, names=[host, *names])
    server.start()
    address = f"http://{host}:{server.port}/{path}"
    sys.stdout.write(f"{what} at {address}  (Ctrl+C ends)\n")
    sys.stdout.flush()
    try:
        if open_browser:
            webbrowser.open(address)
        server.wait()
    finally:
        server.stop()
        if "analyses" in app.extensions:
            app.extensions["analyses"].close()
    return 0
