"""gunicorn's worker for the live snake: an event loop reads, a few threads answer.

gunicorn's own thread worker gives a connection a thread before its request is whole, so that slow
clients take the threads of the others. Here the connections are read by one event loop
(`battlesnake_server.http`), and whole requests wait in *lanes*, each with threads of its own:

* pages, which are all that only asks: health and metrics are answered however busy the snake is;
* outsized requests, larger than any usual game's, one after the other: reading them takes
  milliseconds of the interpreter, which all threads share;
* all others.
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

_OVERSIZED_BODY_BYTES = 1 << 14
"""Bytes of a body; a crowded board of 19x19 needs less."""

_LINGER_S = 1.5
"""How long a stopping worker waits for requests that may be on their way on open connections."""

_SWITCH_INTERVAL_S = 0.001
"""How long a thread may compute while another one waits for the interpreter."""

_RESERVED_FDS = 100
"""Open files that are left for other things than connections."""

_M_MMAP_THRESHOLD, _LARGE_MEMORY = -3, 1 << 20
_M_ARENA_MAX, _ARENAS = -8, 2
"""Parameters of the C library, from its ``malloc.h``, and their values: bytes, and a number."""


class AsyncGunicornWorker(BaseWorker):  # type: ignore[misc]
    """Reads in an event loop, answers in threads; gunicorn's ``threads`` answer usual moves."""

    def init_process(self) -> None:
        """Prepare the loop; gunicorn then loads the application and calls `run`."""
        self.loop = asyncio.new_event_loop()
        self.stopped = asyncio.Event()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        _tune_malloc()
        super().init_process()

    def handle_exit(self, sig: int, frame: object) -> None:
        """SIGTERM: answer what was asked, then end."""
        self.alive = False
        self.loop.call_soon_threadsafe(self.stopped.set)

    def handle_quit(self, sig: int, frame: object) -> None:
        """Ctrl-C: the same; gunicorn would leave from within the signal's handler."""
        self.handle_exit(sig, frame)

    def run(self) -> None:
        """Serve until a signal asks it to stop; after that no signal disturbs the leaving."""
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        # The master repeats what the terminal said, and it may be late.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.loop.close()

    async def _serve(self) -> None:
        self._pages = WsgiPool(self.wsgi, "page", 2, ready=2)
        self._outsized = WsgiPool(self.wsgi, "outsized", 1, ready=1)
        self._usual = WsgiPool(self.wsgi, "move", self.cfg.threads, ready=self.cfg.threads)
        hub = ConnectionTable(self._dispatch, Limits(max_connections=_most_connections()))
        await serve(
            hub,
            [listener.sock for listener in self.sockets],
            self.stopped,
            drain_timeout_s=self.cfg.graceful_timeout - TICK_INTERVAL_S,
            linger_s=_LINGER_S,
            heartbeat=self._beat,
        )
        for lane in (self._pages, self._outsized, self._usual):
            lane.close()

    def _dispatch(self, request: Request, answer: SendResponse) -> None:
        lane = self._outsized if len(request.body) > _OVERSIZED_BODY_BYTES else self._usual
        (lane if request.method == "POST" else self._pages).dispatch(request, answer)

    def _beat(self) -> bool:
        """Show the master that this worker lives; whether it is to go on."""
        self.notify()
        return bool(self.alive and self.ppid == os.getppid())


def _tune_malloc() -> None:
    """Have free memory returned or used again, where the C library is GNU's.

    A search takes 16 MB for each move. Left to itself the library soon keeps some of them for every
    thread that has searched, which comes to a gigabyte on two cores. And it gives threads arenas of
    their own, eight for each core, whose gaps no other fills: with those memory grows for hours.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_MEMORY)
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def _most_connections() -> int:
    """How many there may be, after the limit on this process's open files has been raised."""
    wanted = Limits().max_connections + _RESERVED_FDS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, files - _RESERVED_FDS)
