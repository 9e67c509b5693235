"""``battlesnake-gym serve``: the live snake under gunicorn, or under Flask's reloader."""

from __future__ import annotations

import argparse
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication

from battlesnake_gym.common.command_line import Parser, port, print_error
from battlesnake_server.address_policy import open_listener
from battlesnake_server.live.app import DEFAULTS, create_app, from_environment
from battlesnake_server.live.gunicorn_worker import AsyncGunicornWorker
from battlesnake_server.live.log_rate_limit import configure_rate_limited_logging
from battlesnake_server.strategy_loader import SAFE_FILTER_NAMES

_THREADS_INSTANT = 8
"""Usual moves answered at once by snakes that answer as soon as they can. Only networks run beside
each other; more threads would serve no request sooner, and some much later."""

_THREADS = 128
"""Usual moves answered at once by snakes that take their time: most threads wait for a search."""

_TMPFS = Path("/dev/shm")
"""Where workers show that they live, if it is there: without, a full disk stops them all."""


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted; the exit status is 2 where the configuration is refused."""
    arguments = parser().parse_args(argv)
    try:
        config = _configuration(arguments)
        app = create_app(config)
        _check_free(arguments.host, arguments.port)
    except ValueError as error:
        return print_error("battlesnake-gym serve", error)
    if arguments.dev:
        logging.basicConfig(level=logging.INFO)
        # Without Werkzeug's debugger: it would run code for anyone who reaches the port.
        app.run(arguments.host, arguments.port, debug=True, use_debugger=False, threaded=True)
    else:
        address = f"{arguments.host}:{arguments.port}"
        threads = _THREADS_INSTANT if app.extensions["live_snake"].quick else _THREADS
        Gunicorn(lambda: create_app(config), address, threads).run()
    return 0


def _check_free(host: str, port: int) -> None:
    """Raise ``ValueError`` where the port is not free: before gunicorn tries it again and again.

    The child that Flask's reloader starts is handed a socket, which is already bound.
    """
    if "WERKZEUG_SERVER_FD" not in os.environ:
        open_listener(host, port).close()


class Gunicorn(BaseApplication):  # type: ignore[misc]
    """A web application under gunicorn: one process, many threads.

    One process, because the games' memory lives in it; threads, because a search and a network
    leave the interpreter to the others while they work.
    """

    def __init__(self, make_app: Callable[[], Flask], address: str, threads: int) -> None:
        self._make_app = make_app
        self._options: dict[str, Any] = {
            "bind": address,
            "workers": 1,
            "worker_class": AsyncGunicornWorker,
            "threads": threads,
            "graceful_timeout": 5,
            "control_socket_disable": True,
            "proc_name": "battlesnake",
            "worker_tmp_dir": str(_TMPFS) if _TMPFS.is_dir() else None,
        }
        super().__init__()

    def load_config(self) -> None:
        """Hand our settings to gunicorn."""
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Build the application in the worker: a loaded network does not survive a fork."""
        configure_rate_limited_logging()
        app = self._make_app()
        # What is loaded by now stays; looking through it for garbage would only delay answers.
        gc.collect()
        gc.freeze()
        return app


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym serve",
        description="Answer the Battlesnake API: GET /, POST /start, /move and /end, under any "
        "base path. /healthz and /metrics are for those who run it. Without --snake and --policy "
        "the strongest snake plays, `champion`: the search with what it has learned.",
        epilog="What is left out is read from the environment: BATTLESNAKE_SNAKE, _POLICY, "
        "_FILTERS, _RULES, _COLOR, _HEAD, _TAIL, _AUTHOR, _PONDER (1 or 0). "
        "Example: battlesnake-gym serve --policy runs/demo/policy.onnx --port 8000",
    )
    who = parser.add_mutually_exclusive_group()
    add = parser.add_argument
    who.add_argument(
        "bundle", nargs="?", metavar="SNAKE", help="the same as --snake: serve mine.zip"
    )
    who.add_argument("--snake", metavar="NAME",
        help="a named snake (`battlesnake-gym snakes`), or a bundle: mine.zip")  # fmt: skip
    who.add_argument("--policy", metavar="FILE",
        help="a policy.onnx with policy.json beside it, or `shipped`: the one in the "
        "package")  # fmt: skip
    add("--heuristics", nargs="*", metavar="FILTER", help="move filters that overrule the policy, "
        "in this order; none named: " + " ".join(SAFE_FILTER_NAMES))  # fmt: skip
    add("--rules", metavar="FILE", help="a Python file with a list called rules, of your own "
        "filters, preferences and trees over the policy's values; read only what you would "
        "run")  # fmt: skip
    add("--host", default="127.0.0.1", help="address")
    add("--port", type=port, default=os.environ.get("PORT") or 8000,
        help="port (default: PORT of the environment, which hosts of containers set, or "
        "8000)")  # fmt: skip
    add("--color", help=f"#rrggbb (default: {DEFAULTS['COLOR']})")
    add("--head", help=f"name of the head (default: {DEFAULTS['HEAD']})")
    add("--tail", help=f"name of the tail (default: {DEFAULTS['TAIL']})")
    add("--author", help="your name on arena.battlesnake.com")
    add("--ponder", action="store_true", default=None,
        help="let the search think on, on one core, while it waits for the rivals")  # fmt: skip
    add("--reasons", action="store_true", help="send an arena the reasons of every move")
    add("--dev", action="store_true", help="reload on changes")
    return parser


def _configuration(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was typed, and the environment for what was not."""
    typed = {
        "SNAKE": arguments.bundle or arguments.snake,
        "POLICY": arguments.policy,
        "FILTERS": _filters(arguments.heuristics),
        "RULES": arguments.rules,
        "COLOR": arguments.color,
        "HEAD": arguments.head,
        "TAIL": arguments.tail,
        "AUTHOR": arguments.author,
        "PONDER": arguments.ponder,
    }
    config = from_environment()
    if typed["SNAKE"] or typed["POLICY"]:  # another snake has no use for this one's policy
        config = {
            key: config[key] for key in config.keys() - {"SNAKE", "POLICY", "FILTERS", "RULES"}
        }
    config |= {key: value for key, value in typed.items() if value is not None}
    return config | {"REASONS": arguments.reasons}


def _filters(named: list[str] | None) -> tuple[str, ...] | None:
    """None where the option was left out; the careful snake's where it came without names."""
    return None if named is None else tuple(named) or SAFE_FILTER_NAMES
