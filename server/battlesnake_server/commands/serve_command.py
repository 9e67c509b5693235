"""``battlesnake-gym serve``: serve a snake with gunicorn or Flask's reloader."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from battlesnake_gym.common.command_line import Parser, add_view_radius_option, port, print_error
from battlesnake_server.address_policy import open_listener, parse_host, url_host
from battlesnake_server.live.app import DEFAULT_CONFIG, create_app, from_environment
from battlesnake_server.live.gunicorn_worker import AsyncGunicornWorker
from battlesnake_server.live.log_rate_limit import RateLimitFilter
from battlesnake_server.strategy_loader import SAFE_FILTER_NAMES

_NUM_INSTANT_THREADS = 8
"""Number of threads for normal moves of instant snakes.

Only network inference runs in parallel. Additional threads would increase the latency of some
responses.
"""

_NUM_THREADS = 128
"""Number of threads for normal moves of other snakes.

Most of these threads wait for a search.
"""

_OPTION_SETTINGS = ("POLICY", "POLICY_RULES", "COLOR", "HEAD", "TAIL", "AUTHOR", "PONDER",
                    "VIEW_RADIUS")  # fmt: skip
"""Names of the settings with equally named options."""

_RELOAD_TIMEOUT_S = 60.0
"""Timeout for building the application at a reload, in seconds.

After the timeout, the reload is canceled.
"""

_RELOAD_STATUS = 3
"""Exit status after which Flask's reloader starts its child process again."""

_HEARTBEAT_DIR = Path("/dev/shm")
"""Directory of the workers' heartbeat files, if the directory exists.

The directory is in memory, because workers would stop if the heartbeat files were on a full disk.
"""


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted; exit with status 2 if the configuration is rejected."""
    arguments = parser().parse_args(argv)
    config: dict[str, Any] = {}
    # The user's code may import onnxruntime, whose telemetry thread would abort a forked worker.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        config = _merge_configuration(arguments)
        if arguments.port is None:
            arguments.port = _environment_port()
        # The main process must not import the snake's code: a reload could not replace the code.
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            is_instant = pool.submit(_is_instant, config).result()
        # gunicorn would repeatedly try to open a port that is in use. The child process of Flask's
        # reloader inherits an open socket.
        if "WERKZEUG_SERVER_FD" not in os.environ:
            open_listener(arguments.host, arguments.port).close()
    except (BrokenProcessPool, ValueError) as error:
        reason = "loading the snake ended its process; add memory, or remove os._exit from its code"
        status = print_error(
            "battlesnake-gym serve", error if isinstance(error, ValueError) else reason
        )
        if os.environ.get("WERKZEUG_RUN_MAIN") != "true":
            return status
        _wait_for_change(config)
        return _RELOAD_STATUS
    if arguments.reload:
        logging.basicConfig(level=logging.INFO)
        # Werkzeug's debugger stays off, because the debugger would execute code for anyone with
        # access to the port.
        create_app(config).run(
            arguments.host, arguments.port, debug=True, use_debugger=False, threaded=True
        )
    else:
        address = f"{url_host(arguments.host)}:{arguments.port}"
        threads = _NUM_INSTANT_THREADS if is_instant else _NUM_THREADS
        GunicornServer(lambda: create_app(config), address, threads).run()
    return 0


def _environment_port() -> int:
    """Return the port in the environment variable PORT, which is 8000 by default."""
    text = os.environ.get("PORT") or "8000"
    try:
        return port(text)
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise ValueError(
            f"PORT must be a whole number between 0 and {2**16 - 1}, got {text!r}; correct or "
            "unset the environment variable"
        ) from error


def _wait_for_change(config: Mapping[str, Any]) -> None:
    """Wait until a Python file in a folder of the snake's files changes."""
    names = (config[key] for key in ("SNAKE", "POLICY_RULES") if config.get(key))
    folders = {Path(name).parent for name in names}

    def read_times() -> dict[Path, int]:
        times = {}
        for path in (path for folder in folders for path in folder.glob("*.py")):
            with contextlib.suppress(OSError):  # Some editors replace the file.
                times[path] = path.stat().st_mtime_ns
        return times

    before = read_times()
    while read_times() == before:
        time.sleep(0.2)


def _is_instant(config: Mapping[str, Any]) -> bool:
    """Build the application to check ``config``, and return whether the snake is instant."""
    return bool(create_app(config).extensions["live_snake"].is_instant)


class GunicornServer(BaseApplication):  # type: ignore[misc]
    """Gunicorn server of a web application, with one process and many threads.

    The sessions require a single process. Threads are sufficient, because searches and networks
    release the global interpreter lock during computation.

    Args:
        make_app: Function that builds the application in the worker process.
        address: Address and port to listen on.
        threads: Number of threads for normal moves.
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
            "worker_tmp_dir": str(_HEARTBEAT_DIR) if _HEARTBEAT_DIR.is_dir() else None,
        }
        super().__init__()

    def load_config(self) -> None:
        """Pass this project's settings to gunicorn."""
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Serve until a signal arrives."""
        try:
            _Arbiter(self).run()
        except RuntimeError as error:
            sys.exit(print_error("battlesnake-gym serve", error))

    def check(self) -> None:
        """Build the application to check the configuration; propagate any exception."""
        self._make_app()

    def load(self) -> Flask:
        """Build the application in the worker process.

        A network that is loaded before the fork would not work in the worker process.
        """
        handler = logging.StreamHandler()
        handler.addFilter(RateLimitFilter())
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
        app = self._make_app()
        # All loaded objects stay alive. Garbage collection of these objects would only delay
        # responses.
        gc.collect()
        gc.freeze()
        return app


class _Arbiter(Arbiter):  # type: ignore[misc]
    """Gunicorn's arbiter process, with a check before each reload.

    A failed check does not affect the running server.
    """

    def handle_hup(self) -> None:
        """Handle SIGHUP: reload if the application can be built in a child process."""
        child = multiprocessing.get_context("fork").Process(target=self._check_app)
        child.start()
        child.join(_RELOAD_TIMEOUT_S)
        if child.is_alive():
            child.kill()
            child.join()
            self.log.error(
                "not reloaded; the old snake continues to play: loading the new snake "
                "took more than %g s",
                _RELOAD_TIMEOUT_S,
            )
        elif child.exitcode == 0:
            super().handle_hup()

    def _check_app(self) -> None:
        """Build the application, and exit with status 0 on success or 1 on failure."""
        status = 1
        try:
            self.app.check()
            status = 0
        except BaseException as error:  # A user's code may raise any exception.
            reason = f"{type(error).__name__}: {error}"
            self.log.error("not reloaded; the old snake continues to play: %s", reason)
        finally:
            os._exit(status)


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym serve",
        description="Serve a snake over the Battlesnake API (GET /, POST /start, /move, /end) "
        "under any base path. /healthz and /metrics are for monitoring. Without --snake and "
        "--policy, serves the champion.",
        epilog="Options you omit are read from environment variables: BATTLESNAKE_SNAKE, _POLICY, "
        "_FILTERS, _POLICY_RULES, _COLOR, _HEAD, _TAIL, _AUTHOR, _PONDER (1 or 0). "
        "Example: battlesnake-gym serve --policy runs/demo/policy.onnx --port 8000",
    )
    source = parser.add_mutually_exclusive_group()
    add = parser.add_argument
    source.add_argument("bundle", nargs="?", metavar="SNAKE",
        help="my_snake.py, built-in snake or bundle, as for --snake")  # fmt: skip
    source.add_argument("--snake", metavar="NAME", help="built-in snake (see "
        "`battlesnake-gym snakes`), a Python file (see `battlesnake-gym snakes new`) or a bundle "
        "such as mine.zip")  # fmt: skip
    source.add_argument("--policy", metavar="FILE", help="policy.onnx with policy.json in the "
        'same directory, or "shipped" for the bundled policy')  # fmt: skip
    add("--filters", nargs="*", metavar="FILTER", help="move filters applied to the policy, in "
        "order; without names: " + " ".join(SAFE_FILTER_NAMES))  # fmt: skip
    add("--policy-rules", metavar="FILE", help="Python file that defines `rules`, a list of "
        "filters and preferences applied to the policy's values; the file is executed")  # fmt: skip
    add("--host", type=parse_host, default="127.0.0.1", help="address to listen on")
    add("--port", type=port,
        help="port to listen on (default: $PORT or 8000)")  # fmt: skip
    add("--color", help=f"snake color, #rrggbb (default: its own, or {DEFAULT_CONFIG['COLOR']})")
    add("--head", help=f"snake head, e.g. evil (default: its own, or {DEFAULT_CONFIG['HEAD']})")
    add("--tail", help=f"snake tail, e.g. bolt (default: its own, or {DEFAULT_CONFIG['TAIL']})")
    add("--author", help="your user name on arena.battlesnake.com")
    add("--ponder", action="store_true", default=None,
        help="search on one core while waiting for the opponents' moves")  # fmt: skip
    add_view_radius_option(parser)
    add("--send-decisions", action="store_true",
        help="include the decision (scores, reasons, line) in every /move response")  # fmt: skip
    add("--reload", action="store_true", help="restart the server when a source file changes")
    return parser


def _merge_configuration(arguments: argparse.Namespace) -> dict[str, Any]:
    """Merge the options with the environment; options take precedence."""
    typed = {name: getattr(arguments, name.lower()) for name in _OPTION_SETTINGS}
    typed["SNAKE"] = arguments.snake if arguments.bundle is None else arguments.bundle
    if "" in (typed["SNAKE"], typed["POLICY"]):
        raise ValueError("the name of the snake is empty; omit it to serve the default snake")
    if arguments.filters is not None:  # Without names, the option selects the safe filters.
        typed["FILTERS"] = tuple(arguments.filters) or SAFE_FILTER_NAMES
    config = from_environment()
    # The policy of the environment variables must not apply to the snake of the options.
    if typed["SNAKE"] or typed["POLICY"]:
        config = {
            key: config[key]
            for key in config.keys() - {"SNAKE", "POLICY", "FILTERS", "POLICY_RULES"}
        }
    config |= {key: value for key, value in typed.items() if value is not None}
    return config | {"SEND_DECISIONS": arguments.send_decisions}
