"""The live snake: a Flask application that implements the Battlesnake API.

    create_app({"SNAKE": "hungry", "COLOR": "#3366cc"})

All configuration keys are optional. Without ``SNAKE`` and ``POLICY``, the default snake plays.

====================  ===========================================================================
``SNAKE``             a snake (`SnakeSpec`); the customization of a bundle or a Python file
                      replaces the defaults below
``POLICY``            the same for a policy; excludes ``SNAKE``
``FILTERS``           names of move filters applied to the policy, in order; the bundled policy
                      uses the safe filters by default
``POLICY_RULES``      path of a file of rules for the policy's values, in the format of
                      `battlesnake_heuristics.rule_based.policy_rules`
``COLOR``             snake color, ``#rrggbb``; ``HEAD``, ``TAIL`` and ``AUTHOR`` are names
``PONDER``            if true, a search runs on one core while the snake waits for the next move;
                      1 or 0 in the environment
``VIEW_RADIUS``       view radius in the example game of the snake's page; a real game has its own
``SEND_DECISIONS``    if true, every ``/move`` response includes the decision, for an arena
====================  ===========================================================================

`from_environment` reads all keys except the last two from environment variables such as
``BATTLESNAKE_SNAKE``, for containers.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import Flask, Response, jsonify
from werkzeug.exceptions import HTTPException

from battlesnake_gym import snakes
from battlesnake_gym.snake_spec import BUILTIN_POLICY_NAME, SnakeSpec
from battlesnake_server.bundle import (
    CUSTOMIZATION_FORMATS,
    bundle_customization,
    check_customization,
)
from battlesnake_server.http.connection_table import Limits
from battlesnake_server.live import views
from battlesnake_server.live.live_snake import LiveSnake
from battlesnake_server.strategy_loader import DEFAULT_SNAKE, DEFAULT_SNAKE_NOTICE, strategy_factory

DEFAULT_CONFIG: Mapping[str, Any] = {
    "SNAKE": None,
    "POLICY": None,
    "FILTERS": (),
    "POLICY_RULES": None,
    "COLOR": "#888888",
    "HEAD": "default",
    "TAIL": "default",
    "AUTHOR": "",
    "PONDER": False,
    "VIEW_RADIUS": None,
    "SEND_DECISIONS": False,
    "MAX_CONTENT_LENGTH": Limits().max_body_bytes,
}

_DEFAULT_SNAKE_CUSTOMIZATION = {
    "COLOR": "#6f3fd1", "HEAD": "evil", "TAIL": "bolt", "AUTHOR": "battlesnake-gym",
}  # fmt: skip
"""Customization of the default snake."""

ENVIRONMENT_PREFIX = "BATTLESNAKE_"
"""Prefix of the environment variables."""

log = logging.getLogger(__name__)


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Build the Flask application of a live snake.

    Args:
        config: Configuration values; the module docstring lists the keys.

    Raises:
        ValueError: If a value is invalid, or values exclude each other.
    """
    app = Flask(__name__, static_folder=None, template_folder=None)
    config = dict(config or {})
    app.config.from_mapping(DEFAULT_CONFIG)
    if (config.get("SNAKE") or DEFAULT_SNAKE) == DEFAULT_SNAKE and not config.get("POLICY"):
        app.config.from_mapping(_DEFAULT_SNAKE_CUSTOMIZATION)
    app.config.from_mapping(
        {k.upper(): v for k, v in bundle_customization(config.get("SNAKE")).items()}
    )
    app.config.from_mapping(config)
    check_customization({key: app.config[key.upper()] for key in CUSTOMIZATION_FORMATS})
    is_default = app.config["SNAKE"] is None and app.config["POLICY"] is None
    app.config["NOTICE"] = DEFAULT_SNAKE_NOTICE if is_default else ""
    if app.config["NOTICE"]:
        log.warning(app.config["NOTICE"])
    if app.config["SNAKE"] and app.config["POLICY"]:
        raise ValueError(
            f"give either a snake or a policy, got {app.config['SNAKE']!r} and "
            f"{app.config['POLICY']!r}"
        )
    spec = SnakeSpec.parse(str(app.config["POLICY"] or BUILTIN_POLICY_NAME))
    if not spec.is_bundle and snakes.policy_path(spec) is None:
        raise ValueError(
            f"{spec.source!r} is not a policy; give the path of a .onnx file or a run directory, "
            f"or {BUILTIN_POLICY_NAME}; to serve another snake, use --snake"
        )
    factory = strategy_factory(
        app.config["SNAKE"] or app.config["POLICY"],
        filters=app.config["FILTERS"],
        rules=app.config["POLICY_RULES"],
    )
    app.extensions["live_snake"] = LiveSnake(
        factory,
        ponders=app.config["PONDER"],
        view_radius=app.config["VIEW_RADIUS"],
    )
    app.register_blueprint(views.blueprint)
    app.url_map.strict_slashes = False  # A redirect would turn an engine's POST into a GET.
    # Engines append /move to the snake's URL, so the application handles requests below any base
    # path.
    app.register_blueprint(views.blueprint, name="below", url_prefix="/<path:base>")
    app.register_blueprint(views.operations)
    app.register_error_handler(Exception, _error_response)
    app.wsgi_app = _timestamp_middleware(app.wsgi_app)  # type: ignore[method-assign]
    return app


def from_environment() -> dict[str, Any]:
    """Return the configuration from the environment.

    Empty variables count as unset. Spaces separate the names in ``BATTLESNAKE_FILTERS``. A
    name that closely resembles a known name is logged as a warning. Other names are ignored,
    because Kubernetes sets ``BATTLESNAKE_PORT``, for example, for a service of this name.

    Raises:
        ValueError: If ``BATTLESNAKE_PONDER`` is neither 1 nor 0.
    """
    keys = set(DEFAULT_CONFIG) - {"VIEW_RADIUS", "SEND_DECISIONS", "MAX_CONTENT_LENGTH"}
    for variable in os.environ:
        key = variable.removeprefix(ENVIRONMENT_PREFIX)
        if key != variable and key not in keys:
            for known in difflib.get_close_matches(key, sorted(keys), 1, 0.8):
                log.warning(
                    "%s has no effect; did you mean %s%s?", variable, ENVIRONMENT_PREFIX, known
                )
    config: dict[str, Any] = {key: os.environ.get(ENVIRONMENT_PREFIX + key) for key in keys}
    if config["FILTERS"]:
        config["FILTERS"] = config["FILTERS"].split()
    if config["PONDER"]:
        if config["PONDER"] not in ("0", "1"):
            raise ValueError(f"{ENVIRONMENT_PREFIX}PONDER must be 1 or 0, got {config['PONDER']!r}")
        config["PONDER"] = config["PONDER"] == "1"
    return {key: value for key, value in config.items() if value}


def _error_response(error: Exception) -> tuple[Response, int]:
    """Return an error as a JSON response.

    Internal errors are logged.
    """
    if isinstance(error, HTTPException):
        response = jsonify(error=error.description)
        # The headers include Allow, which a response with status 405 must include.
        response.headers.extend((k, v) for k, v in error.get_headers() if k != "Content-Type")
        return response, error.code or 500
    log.exception("internal error")
    return jsonify(error="internal error"), 500


def _timestamp_middleware(application: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an application to set arrival times and to normalize paths.

    The path ``//move/`` becomes ``/move``. An arrival time that the web server has set does not
    change.
    """

    def add_timestamp(
        environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        environ.setdefault("server.arrived", time.perf_counter())
        environ["PATH_INFO"] = re.sub("/+", "/", environ.get("PATH_INFO", "")).rstrip("/") or "/"
        answer: Iterable[bytes] = application(environ, start_response)
        return answer

    return add_timestamp
