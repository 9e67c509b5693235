"""gunicorn worker of the live snake.

gunicorn's own thread worker assigns a thread to a connection before the request is complete. Slow
clients then occupy the threads of other clients. This worker reads all connections in one event
loop (`battlesnake_server.http`). Complete requests go to one of three thread pools:

* pages: all GET requests, so that health checks and metrics respond even if the snake is busy;
* oversized requests: requests larger than the requests of normal games (`ParseGate` orders
  parsing);
* moves: all other requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import sys

from gunicorn.workers.base import Worker as BaseWorker

from battlesnake_server.http.connection_table import ConnectionTable, Limits, Request, SendResponse
from battlesnake_server.http.http_protocol import TICK_INTERVAL_S, serve
from battlesnake_server.http.wsgi_pool import WsgiPool
from battlesnake_server.live.parse_gate import OVERSIZED_BODY_BYTES

_OVERSIZED_THREADS = 64
"""Number of threads for oversized requests.

Most of these threads wait for the parser or for a search.
"""

_LINGER_S = 1.5
"""Time during which a stopping worker accepts requests, in seconds.

The requests arrive on open connections.
"""

_SWITCH_INTERVAL_S = 0.001
"""Interval in seconds after which a thread must release the interpreter lock."""

_RESERVED_FDS = 100
"""File descriptors reserved for purposes other than connections."""

_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 1 << 20
_M_ARENA_MAX, _MAX_ARENAS = -8, 2
"""Parameters of glibc's ``mallopt``, and their values.

The parameters are a size in bytes and the maximum number of arenas.
"""


class AsyncGunicornWorker(BaseWorker):  # type: ignore[misc]
    """gunicorn worker that reads requests in an event loop.

    gunicorn's setting ``threads`` is the number of threads for normal moves.
    """

    def init_process(self) -> None:
        """Prepare the event loop.

        gunicorn then loads the application and calls `run`.
        """
        self.loop = asyncio.new_event_loop()
        self.stopped = asyncio.Event()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        _tune_malloc()
        super().init_process()

    def handle_exit(self, sig: int, frame: object) -> None:
        """Handle SIGTERM: finish the current requests, then exit."""
        self.alive = False
        self.loop.call_soon_threadsafe(self.stopped.set)

    def handle_quit(self, sig: int, frame: object) -> None:
        """Handle SIGINT and SIGQUIT (Ctrl-C) like SIGTERM.

        gunicorn's own handler would exit immediately.
        """
        self.handle_exit(sig, frame)

    def run(self) -> None:
        """Serve until a signal arrives.

        Later signals do not interrupt the shutdown.
        """
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        # The master process may repeat the terminal's signal later.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.loop.close()

    async def _serve(self) -> None:
        """Run the thread pools and serve connections until the worker stops."""
        self._pages = WsgiPool(self.wsgi, "page", 2, ready=2)
        self._oversized = WsgiPool(self.wsgi, "outsized", _OVERSIZED_THREADS, ready=1)
        self._normal = WsgiPool(self.wsgi, "move", self.cfg.threads, ready=self.cfg.threads)
        table = ConnectionTable(self._dispatch, Limits(max_connections=_raise_connection_limit()))
        await serve(
            table,
            [listener.sock for listener in self.sockets],
            self.stopped,
            drain_timeout_s=self.cfg.graceful_timeout - TICK_INTERVAL_S,
            linger_s=_LINGER_S,
            heartbeat=self._send_heartbeat,
        )
        for pool in (self._pages, self._oversized, self._normal):
            pool.close()

    def _dispatch(self, request: Request, answer: SendResponse) -> None:
        """Pass a request to the thread pool for its method and size."""
        pool = self._oversized if len(request.body) > OVERSIZED_BODY_BYTES else self._normal
        (pool if request.method == "POST" else self._pages).dispatch(request, answer)

    def _send_heartbeat(self) -> bool:
        """Send the heartbeat to the master process.

        Returns:
            Whether the worker should continue.
        """
        self.notify()
        return bool(self.alive and self.ppid == os.getppid())


def _tune_malloc() -> None:
    """Configure glibc to return or reuse freed memory.

    A search allocates 16 MB per move. By default, glibc retains some of this memory for every
    thread that has searched, about 1 GB on two cores. By default, glibc also creates up to eight
    arenas per core. An arena cannot use the free memory of other arenas, so memory usage grows for
    hours.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        library.mallopt(_M_ARENA_MAX, _MAX_ARENAS)


def _raise_connection_limit() -> int:
    """Raise the limit of open files, and return the maximum number of connections."""
    wanted = Limits().max_connections + _RESERVED_FDS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, files - _RESERVED_FDS)
