"""Shared code of all pages: application, requests, errors and server.

Each group of pages is a blueprint. The sites of the arena, recorded games, runs and puzzles combine
blueprints. The navigation of a site lists the registered blueprints.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, current_app, jsonify, render_template, request
from werkzeug.exceptions import HTTPException, NotFound

from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.common.untrusted_text import parse_json
from battlesnake_gym.replays.replay import Replay, ReplayError
from battlesnake_gym.rules import RulesError
from battlesnake_server.address_policy import open_listener, url_host
from battlesnake_server.http.page_server import MAX_REQUEST_BODY_BYTES, PageServer
from battlesnake_server.replay_viewer import embedded_player, position_formats
from battlesnake_server.replay_viewer.analysis_queue import AnalysisQueue, BusyError
from battlesnake_server.replay_viewer.what_if import MAX_SEEN_TURNS
from battlesnake_server.web import access_control

_MIN_COMPRESSED_BYTES = 1024
"""Minimum size of a response to compress, in bytes."""

_COMPRESSED_TYPES = ("text/", "application/json", "application/javascript", "image/svg+xml")

_EMBEDDED_TURNS_PER_SECOND = 6

_MAX_QUERY_INT = 2**31 - 1
"""Maximum integer in a query string; a valid id in all databases."""


_ERROR_STATUSES = {
    BoardError: 400,
    RulesError: 400,
    ReplayError: 422,
    BusyError: 503,
    MemoryError: 503,
}
"""Status of the JSON response to a request that raises an error, by type."""

_NAVIGATION = (
    ("league.index", "League"),
    ("leaderboard.index", "Leaderboard"),
    ("games.live", "Live"),
    ("games.index", "Games"),
    ("runs.index", "Runs"),
    ("watch.index", "Replays"),
    ("play.index", "Play"),
    ("lab.index", "Editor"),
)
"""Endpoints and titles of the navigation.

A site shows only registered endpoints.
"""


class _Site(Flask):
    """Application with relative links.

    A proxy may therefore serve the pages below any path.
    """

    def url_for(self, endpoint: str, **values: Any) -> str:
        """Return the relative URL of a page, for the current request."""
        return _relative(super().url_for(endpoint, **values))


def _relative(path: str) -> str:
    """Return ``path`` relative to the path of the current request.

    The relative URL starts with ``../`` for each directory level above the current page.
    """
    depth = request.environ["PATH_INFO"].count("/") - 1  # `request.path` merges leading slashes.
    return ("../" * depth or "./") + path.lstrip("/")


def create_application(brand: str, *parts: Blueprint) -> Flask:
    """Create an application whose pages do not load content from other sites.

    Args:
        brand: Name of the site.
        *parts: Blueprints of the site.
    """
    # This package contains the templates and static files.
    app = _Site("battlesnake_server")
    app.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BODY_BYTES
    app.extensions["analyses"] = AnalysisQueue()
    for part in parts:
        app.register_blueprint(part)
    app.context_processor(
        lambda: {"brand": brand, "start_page": _relative("/"), "navigation": _registered_pages()}
    )
    app.register_error_handler(404, _render_not_found)
    app.register_error_handler(FileNotFoundError, _respond_to_missing_game)
    for kind, status in _ERROR_STATUSES.items():
        app.register_error_handler(kind, functools.partial(error_response, status=status))
    access_control.require_token(app)
    app.after_request(_make_redirect_relative)
    app.after_request(_set_security_headers)
    app.after_request(_compress_response)
    return app


def _registered_pages() -> list[tuple[str, str]]:
    """Return the endpoints and titles of the registered pages."""
    return [page for page in _NAVIGATION if page[0] in current_app.view_functions]


def _render_not_found(error: NotFound) -> tuple[str, int]:
    """Render the page for unknown addresses and missing games."""
    unknown = error.description == NotFound.description
    reason = "This page does not exist." if unknown else error.description
    return render_template("missing.html", reason=reason), 404


def _respond_to_missing_game(error: FileNotFoundError) -> Response:
    """Respond with status 404; re-raise errors of the operating system, which are bugs."""
    if error.errno is not None:
        raise error
    return error_response(error, 404)


def _make_redirect_relative(response: Response) -> Response:
    """Make the address of a redirect relative."""
    if response.location is not None:
        url = urlsplit(response.location)
        response.location = _relative(url.path) + (f"?{url.query}" if url.query else "")
        response.set_data("")  # The text contains the absolute address.
    return response


def _set_security_headers(response: Response) -> Response:
    """Set headers that restrict browsers to content from this server."""
    kinds = ("script", "style", "connect")
    sources = "; ".join(f"{kind}-src 'self'" for kind in kinds)
    sources += "; img-src 'self' blob:"  # The GIF encoder draws the board as an image.
    response.headers.setdefault(
        "Content-Security-Policy",
        f"default-src 'none'; {sources}; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-cache"
    return response


def _compress_response(response: Response) -> Response:
    """Compress the response if its type, its size and the client allow compression."""
    if (
        response.status_code != 200
        or not (response.mimetype or "").startswith(_COMPRESSED_TYPES)
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


def parse_body() -> dict[str, Any]:
    """Return the JSON object of the request body.

    Requests need a JSON content type, because pages of other sites cannot send this type.

    Raises:
        BoardError: If the body is not a JSON object.
    """
    if not request.is_json:
        raise BoardError("request must have the content type application/json")
    try:
        sent = parse_json(request.get_data())
    except (HTTPException, ValueError, RecursionError) as error:
        raise BoardError("request is not JSON") from error
    if not isinstance(sent, dict):
        raise BoardError(f"request must be a JSON object, got {type(sent).__name__}")
    return sent


def query_integer(
    name: str, default: int, *, minimum: int = 0, maximum: int = _MAX_QUERY_INT
) -> int:
    """Return the integer query parameter ``name``, clamped to the bounds."""
    return min(max(minimum, request.args.get(name, default, int)), maximum)


def error_response(error: Exception | str, status: int = 400) -> Response:
    """Return a JSON response with an ``error`` message."""
    response = jsonify(error=str(error))
    response.status_code = status
    return response


def add_game_pages(
    blueprint: Blueprint,
    rule: str,
    load: Callable[[str], Replay],
    find_file: Callable[[str], tuple[Path, int | None]],
) -> None:
    """Add the embedded player, the positions and the analysis of each game to a blueprint.

    Args:
        blueprint: Blueprint that receives the pages.
        rule: Rule for the addresses, with the variable ``key`` and ``{}`` for the page.
        load: Function that returns the game with a key.
        find_file: Function that returns the file of a game, and the view radius if the game's
            settings have none. The function raises ``FileNotFoundError`` if the game has no file.
    """

    @blueprint.get(rule.format("embed"))
    def embed(key: str) -> Response:
        """Return a page without actions that other sites may show in a frame."""
        page = embedded_player.render_page(load(key), _EMBEDDED_TURNS_PER_SECOND)
        sources = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
        return Response(page, headers={"Content-Security-Policy": sources})

    @blueprint.get(rule.format("turn/<int:turn>/<form>"))
    def position(key: str, turn: int, form: str) -> Response:
        """Return one position in a format that `position_formats.respond` supports."""
        replay = load(key)
        try:
            return position_formats.respond(replay.boards_until(turn, MAX_SEEN_TURNS), form)
        except ValueError as error:
            return error_response(error, 404)

    @blueprint.get(rule.format("analysis"))
    def analysis(key: str) -> Response:
        """Return the state of the analysis, with the turns from the index ``?since=``."""
        try:
            game, view_radius = find_file(key)
        except FileNotFoundError as error:
            return jsonify(state="no-replay", error=str(error), done=0, turns=[])
        since = query_integer("since", 0)
        return jsonify(_current_analysis_queue().status_to_dict(game, since, view_radius))

    @blueprint.post(rule.format("analysis"))
    def start_analysis(key: str) -> Response:
        """Start the analysis in the background."""
        parse_body()
        game, view_radius = find_file(key)
        _current_analysis_queue().start(game, view_radius)
        return jsonify(_current_analysis_queue().status_to_dict(game, 0, view_radius))


def _current_analysis_queue() -> AnalysisQueue:
    """Return the analysis queue of the current application."""
    return cast(AnalysisQueue, current_app.extensions["analyses"])


_LOCAL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses at which a browser of this machine reaches a server of all addresses."""


class Site(PageServer):
    """Web site whose server runs in background threads while its context is active.

    Args:
        app: Application to serve.
        options: Parsed options of `address_policy.add_page_options`.
        token: Access token that every action requires. If the token is None, the site has actions,
            and other machines can reach the server, the class creates a token.
        threads: Number of server threads.

    Raises:
        ValueError: If the port is in use.
    """

    def __init__(
        self,
        app: Flask,
        options: argparse.Namespace,
        *,
        token: str | None = None,
        threads: int = 8,
    ) -> None:
        listener = open_listener(options.host, options.port)
        names = [options.host, *options.allow_host]
        super().__init__(app, listener, names=names, threads=threads)
        self._app = app
        if any("POST" in (rule.methods or ()) for rule in app.url_map.iter_rules()):
            token = token or access_control.create_token(options.host, options.allow_host)
            app.config["TOKEN"] = token
        host = _LOCAL_ADDRESSES.get(listener.getsockname()[0], options.host)
        self.address = f"http://{url_host(host)}:{self.port}/"

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._app.extensions["analyses"].close()

    def announce(self, what: str, output: TextIO) -> None:
        """Print the address and, if actions require an access token, a hint.

        Args:
            what: Name of the site.
            output: Stream to print to.
        """
        output.write(f"serving {what} at {self.address} (Ctrl+C to stop)\n")
        if (token := self._app.config["TOKEN"]) is not None:
            action = access_control.ACTION_DESCRIPTION
            hint = f"open {self.address}?token={token} to {action}; other visitors can only read\n"
            output.write(hint)
        output.flush()


def serve(app: Flask, what: str, options: argparse.Namespace, path: str = "") -> int:
    """Serve an application until interrupted.

    Args:
        app: Application to serve.
        what: Name of the site, printed with its address.
        options: Parsed options of `address_policy.add_page_options`, and ``no_browser``.
        path: Path of the printed address.

    Returns:
        Exit status 0.

    Raises:
        ValueError: If the port is in use.
    """
    # Ctrl+C may arrive before `wait`.
    with Site(app, options) as site, contextlib.suppress(KeyboardInterrupt):
        site.address += path
        site.announce(what, sys.stdout)
        if not options.no_browser:
            webbrowser.open(site.address)
        site.wait()
    return 0
