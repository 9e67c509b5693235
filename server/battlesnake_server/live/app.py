"""The live snake: a Flask application that answers the Battlesnake API.

    create_app({"SNAKE": "hungry", "COLOR": "#3366cc"})

The configuration, all of it optional; without a snake or a policy the one that ships plays.

=============  ==================================================================================
``SNAKE``      name of a snake (`battlesnake-gym snakes` lists them), or the path of a bundle, whose
               looks then replace those that are not given
``POLICY``     path of a ``policy.onnx``; instead of ``SNAKE``
``FILTERS``    names of move filters that overrule the policy, in order; the one that ships has
               those of a careful snake anyway
``RULES``      path of a file with rules over the policy, as
               `battlesnake_heuristics.rule_based.policy_rules` reads them
``COLOR``      ``#rrggbb``; ``HEAD`` and ``TAIL`` name the looks, ``AUTHOR`` the player
``PONDER``     true lets a search think on one core while it waits for the next move; in the
               environment 1 or 0
``REASONS``    true adds the reasons of every move to its answer, for an arena to keep
=============  ==================================================================================

`from_environment` reads all but the last two from ``BATTLESNAKE_SNAKE`` and so on, for containers.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import Flask, Response, jsonify
from werkzeug.exceptions import HTTPException

from battlesnake_server.bundle import bundle_customization
from battlesnake_server.live import front_page, views
from battlesnake_server.live.live_snake import LiveSnake
from battlesnake_server.strategy_loader import DEFAULT_SNAKE, strategy_factory

_MAX_BODY_BYTES = 1 << 18
"""Bytes of a request; the largest board that is played needs a fifth."""

DEFAULTS: Mapping[str, Any] = {
    "SNAKE": None,
    "POLICY": None,
    "FILTERS": (),
    "RULES": None,
    "COLOR": "#888888",
    "HEAD": "default",
    "TAIL": "default",
    "AUTHOR": "",
    "PONDER": False,
    "REASONS": False,
    "MAX_CONTENT_LENGTH": _MAX_BODY_BYTES,
}

_DEFAULT_SNAKE_CUSTOMIZATION = {
    "COLOR": "#6f3fd1", "HEAD": "evil", "TAIL": "bolt", "AUTHOR": "battlesnake-gym",
}  # fmt: skip
"""Looks of the snake that plays where no other is named."""

PREFIX = "BATTLESNAKE_"
"""What the names of the environment variables begin with."""

log = logging.getLogger(__name__)


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Build the application; a ``ValueError`` says at once what is wrong with ``config``."""
    app = Flask(__name__, static_folder=None, template_folder=None)
    config = dict(config or {})
    app.config.from_mapping(DEFAULTS)
    if (config.get("SNAKE") or DEFAULT_SNAKE) == DEFAULT_SNAKE and not config.get("POLICY"):
        app.config.from_mapping(_DEFAULT_SNAKE_CUSTOMIZATION)
    app.config.from_mapping(
        {k.upper(): v for k, v in bundle_customization(config.get("SNAKE")).items()}
    )
    app.config.from_mapping(config)
    if not re.fullmatch("#[0-9a-fA-F]{6}", app.config["COLOR"]):
        raise ValueError(f"{app.config['COLOR']!r} is not a colour; give one like #3366cc")
    factory = strategy_factory(
        snake=app.config["SNAKE"],
        policy=app.config["POLICY"],
        filters=app.config["FILTERS"],
        rules=app.config["RULES"],
    )
    app.extensions["live_snake"] = LiveSnake(factory, ponders=app.config["PONDER"])
    app.register_blueprint(views.blueprint)
    app.url_map.strict_slashes = False  # a redirect would turn an engine's POST into a GET
    # Engines append /move to whatever URL they were given, so any base path is ours too.
    app.register_blueprint(views.blueprint, name="below", url_prefix="/<path:base>")
    app.register_blueprint(views.operations)
    app.register_blueprint(front_page.blueprint)
    app.register_blueprint(front_page.blueprint, name="front_below", url_prefix="/<path:base>")
    app.register_error_handler(Exception, _error)
    app.wsgi_app = _timestamp_middleware(app.wsgi_app)  # type: ignore[method-assign]
    return app


def from_environment() -> dict[str, Any]:
    """The configuration in the environment; empty variables count as missing.

    The names in ``BATTLESNAKE_FILTERS`` are separated by spaces. Raises ``ValueError`` where
    ``BATTLESNAKE_PONDER`` is neither 1 nor 0.
    """
    keys = set(DEFAULTS) - {"REASONS", "MAX_CONTENT_LENGTH"}
    config: dict[str, Any] = {key: os.environ.get(PREFIX + key) for key in keys}
    if config["FILTERS"]:
        config["FILTERS"] = config["FILTERS"].split()
    if config["PONDER"]:
        if config["PONDER"] not in ("0", "1"):
            raise ValueError(f"{PREFIX}PONDER must be 1 or 0, got {config['PONDER']!r}")
        config["PONDER"] = config["PONDER"] == "1"
    return {key: value for key, value in config.items() if value}


def _error(error: Exception) -> tuple[Response, int]:
    """Every error leaves as JSON; what is our own fault is also logged."""
    if isinstance(error, HTTPException):
        return jsonify(error=error.description), error.code or 500
    log.exception("internal error")
    return jsonify(error="internal error"), 500


def _timestamp_middleware(application: Callable[..., Any]) -> Callable[..., Any]:
    """Note when a request arrived, unless the web server did; read ``//move/`` as ``/move``."""

    def enter(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ.setdefault("server.arrived", time.perf_counter())
        environ["PATH_INFO"] = re.sub("/+", "/", environ.get("PATH_INFO", "")).rstrip("/") or "/"
        answer: Iterable[bytes] = application(environ, start_response)
        return answer

    return enter
