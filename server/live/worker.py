"""gunicorn's worker for the live snake: an event loop reads, a few threads answer.

gunicorn's own thread worker gives a connection a thread before its request is whole, so that slow
clients take the threads of the others. Here the connections are read by one event loop
(`server.live.connections`), and whole requests wait in *lanes*, each with threads of its own:

* pages, which are all that only asks: health and metrics are answered however busy the snake is;
* outsized requests, larger than any usual game's, one after the other: reading them takes
  milliseconds of the interpreter, which all threads share;
* all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import io
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from gunicorn.workers.base import Worker as BaseWorker

from server.live.connections import TEXT, Answer, Headers, Hub, Limits, Request
from server.live.threads import Threads

OUTSIZED = 1 << 14
"""Bytes of a body; a crowded board of 19x19 needs less."""

MOST_ASKED = 2000
"""Requests of one lane that are not answered yet; one more is refused with status 503."""

BUSY, GONE = "503 Service Unavailable", "408 Request Timeout"

TICK_SECONDS = 0.25

LINGER_SECONDS = 1.5
"""How long a stopping worker waits for requests that may be on their way on open connections."""

SWITCH_SECONDS = 0.001
"""How long a thread may compute while another one waits for the interpreter."""

SPARE_FILES = 100
"""Open files that are left for other things than connections."""

M_MMAP_THRESHOLD, LARGE_MEMORY = -3, 1 << 20
M_ARENA_MAX, ARENAS = -8, 2
"""Parameters of the C library, from its ``malloc.h``, and their values: bytes, and a number."""

Application = Callable[..., Iterable[bytes]]

log = logging.getLogger(__name__)


class Worker(BaseWorker):  # type: ignore[misc]
    """Reads in an event loop, answers in threads; gunicorn's ``threads`` answer usual moves."""

    def init_process(self) -> None:
        """Prepare the loop; gunicorn then loads the application and calls `run`."""
        self.loop = asyncio.new_event_loop()
        self.stopped = asyncio.Event()
        sys.setswitchinterval(SWITCH_SECONDS)
        _keep_little_memory()
        super().init_process()

    def handle_exit(self, sig: int, frame: object) -> None:
        """SIGTERM: answer what was asked, then end."""
        self.alive = False
        self.loop.call_soon_threadsafe(self.stopped.set)

    def handle_quit(self, sig: int, frame: object) -> None:
        """Ctrl-C: the same; gunicorn would leave from within the signal's handler."""
        self.handle_exit(sig, frame)

    def run(self) -> None:
        """Serve until told to stop; after that no signal disturbs the leaving."""
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        # The master repeats what the terminal said, and it may be late.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.loop.close()

    async def _serve(self) -> None:
        lanes = Lanes(self.wsgi, self.loop, self.cfg.threads)
        hub = Hub(lanes.dispatch, Limits(connections=_most_connections()))
        servers = [await _listen(self.loop, hub, listener.sock) for listener in self.sockets]
        while self.alive and self.ppid == os.getppid():
            self.notify()
            hub.tick()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopped.wait(), TICK_SECONDS)
        for server in servers:
            server.close()
        await self._drain(hub)
        hub.close()
        lanes.close()

    async def _drain(self, hub: Hub) -> None:
        """Answer what was asked, and what comes within a moment."""
        hub.stopping = True
        began = time.monotonic()
        while (passed := time.monotonic() - began) < self.cfg.graceful_timeout - TICK_SECONDS:
            on_their_way = (hub.idle or hub.sending) and passed < LINGER_SECONDS
            if not hub.answering and not on_their_way:
                return
            self.notify()
            hub.tick()
            await asyncio.sleep(0.02)


class Lanes:
    """Which threads answer a request, and how an application is asked."""

    def __init__(
        self, application: Application, loop: asyncio.AbstractEventLoop, threads: int
    ) -> None:
        self._application = application
        self._loop = loop
        self._pages = Lane("page", 2)
        self._outsized = Lane("outsized", 1)
        self._usual = Lane("move", threads)

    def dispatch(self, request: Request, answer: Answer) -> None:
        """Have ``request`` answered; to be called by the loop's thread."""
        lane = self._lane(request)
        if lane.asked >= MOST_ASKED:
            answer(BUSY, TEXT, b"too many requests")
            return
        lane.asked += 1
        lane.threads.submit(functools.partial(self._work, request, lane, answer))

    def _lane(self, request: Request) -> Lane:
        if request.method != "POST":
            return self._pages
        return self._outsized if len(request.body) > OUTSIZED else self._usual

    def _work(self, request: Request, lane: Lane, answer: Answer) -> None:
        status, headers, body = GONE, TEXT, b"you have left"
        if not request.client.gone:
            status, headers, body = ask(self._application, request)
        with contextlib.suppress(RuntimeError):  # the loop is closed: too late for everybody
            self._loop.call_soon_threadsafe(_hand_over, lane, answer, status, headers, body)

    def close(self) -> None:
        """Begin nothing more."""
        for lane in (self._pages, self._outsized, self._usual):
            lane.threads.close()


class Lane:
    """Threads that all run from the beginning, and how many requests they have not answered."""

    def __init__(self, name: str, threads: int) -> None:
        self.asked = 0
        self.threads = Threads(name, threads, ready=threads)


def _hand_over(lane: Lane, answer: Answer, status: str, headers: Headers, body: bytes) -> None:
    lane.asked -= 1
    answer(status, headers, body)


def ask(application: Application, request: Request) -> tuple[str, Headers, bytes]:
    """The status, headers and body that a WSGI application answers; 500 where it fails."""
    try:
        return _ask(application, request)
    except Exception:
        log.exception("internal error")
        return "500 Internal Server Error", TEXT, b"internal error"


def _ask(application: Application, request: Request) -> tuple[str, Headers, bytes]:
    started: list[Any] = []

    def start_response(status: str, headers: Headers, exc_info: object = None) -> None:
        started[:] = status, headers

    content = application(environment(request), start_response)
    try:
        body = b"".join(content)
    finally:
        if hasattr(content, "close"):
            content.close()
    status, headers = started
    return status, headers, body


def environment(request: Request) -> dict[str, Any]:
    """A request as WSGI has it, with two keys of ours: when it arrived, and who asks."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path.decode("latin-1"),
        "QUERY_STRING": request.query.decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "REMOTE_ADDR": str(request.peer[0]),
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "server.arrived": request.arrived,
        "server.client": request.client,
    }
    for name, value in request.headers:
        key = name.decode("latin-1").upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = value.decode("latin-1")
        elif key not in ("CONTENT_LENGTH", "TRANSFER_ENCODING") and b"_" not in name:
            environ[f"HTTP_{key}"] = value.decode("latin-1")
    return environ


def _keep_little_memory() -> None:
    """Have free memory returned or used again, where the C library is GNU's.

    A search takes 16 MB for each move. Left to itself the library soon keeps some of them for every
    thread that has searched, which comes to a gigabyte on two cores. And it gives threads arenas of
    their own, eight for each core, whose gaps nobody else fills: with those memory grows for hours.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, LARGE_MEMORY)
        library.mallopt(M_ARENA_MAX, ARENAS)


async def _listen(loop: asyncio.AbstractEventLoop, hub: Hub, listener: Any) -> asyncio.Server:
    # So many are accepted at once, before anybody is answered; the others wait in the kernel.
    server = await loop.create_server(hub.open, sock=listener, backlog=32)
    listener.listen(2048)
    return server


def _most_connections() -> int:
    """How many there may be, after the limit on this process's open files has been raised."""
    wanted = Limits().connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, files - SPARE_FILES)
