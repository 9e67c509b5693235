"""Thread pools that run a WSGI application on complete requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any

from battlesnake_server.http.connection_table import (
    STATUS_TIMEOUT,
    STATUS_UNAVAILABLE,
    TEXT_HEADERS,
    Headers,
    Request,
    SendResponse,
)
from battlesnake_server.http.thread_pool import ThreadPool

_MAX_QUEUED_REQUESTS = 2000
"""Maximum number of pending requests of one pool.

Further requests receive status 503.
"""

Application = Callable[..., Iterable[bytes]]

log = logging.getLogger(__name__)


class WsgiPool:
    """Thread pool that runs a WSGI application.

    Args:
        application: WSGI application.
        name: Prefix of the threads' names.
        threads: Maximum number of threads.
        ready: Number of threads that start immediately.
    """

    def __init__(
        self, application: Application, name: str, threads: int, *, ready: int = 0
    ) -> None:
        self._application = application
        self._threads = ThreadPool(name, threads, min_threads=ready)
        self._num_pending_requests = 0

    def dispatch(self, request: Request, answer: SendResponse) -> None:
        """Queue a request.

        Call this method in the event loop.

        Args:
            request: Complete request.
            answer: Callback that sends the response.
        """
        if self._num_pending_requests >= _MAX_QUEUED_REQUESTS:
            answer(STATUS_UNAVAILABLE, TEXT_HEADERS, b"too many requests")
            return
        self._num_pending_requests += 1
        loop = asyncio.get_running_loop()
        self._threads.submit(functools.partial(self._handle_request, request, answer, loop))

    def _handle_request(
        self, request: Request, answer: SendResponse, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Run the application on a request, in a thread of the pool."""
        status, headers, body = STATUS_TIMEOUT, TEXT_HEADERS, b"you have left"
        if not request.disconnected.done():
            status, headers, body = _call_wsgi_app(self._application, request)
        with contextlib.suppress(RuntimeError):  # The event loop may be closed.
            loop.call_soon_threadsafe(self._send_response, answer, status, headers, body)

    def _send_response(
        self, answer: SendResponse, status: str, headers: Headers, body: bytes
    ) -> None:
        """Send a response, in the event loop."""
        self._num_pending_requests -= 1
        answer(status, headers, body)

    def close(self) -> None:
        """End all threads after the queued requests."""
        self._threads.close()


def _call_wsgi_app(application: Application, request: Request) -> tuple[str, Headers, bytes]:
    """Return the status, headers and body of a WSGI application's response.

    The status is 500 if the application raises an exception.
    """
    started: list[Any] = []

    def start_response(status: str, headers: Headers, exc_info: object = None) -> None:
        started[:] = status, headers

    try:
        content = application(_wsgi_environ(request), start_response)
        try:
            body = b"".join(content)
        finally:
            if hasattr(content, "close"):
                content.close()
        status, headers = started
    except BaseException:  # The client receives a response even after SystemExit.
        log.exception("internal error")
        return "500 Internal Server Error", TEXT_HEADERS, b"internal error"
    return status, headers, body


def _wsgi_environ(request: Request) -> dict[str, Any]:
    """Convert a request to a WSGI environment.

    Two keys are specific to this server. ``server.arrived`` is the arrival time of the first byte
    (`time.perf_counter`). ``server.disconnected`` is `Request.disconnected`.
    """
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path.decode("latin-1"),
        "QUERY_STRING": request.query.decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": str(request.server_port),
        "REMOTE_ADDR": str(request.client_address[0]),
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "server.arrived": request.received_at,
        "server.disconnected": request.disconnected,
    }
    for name, value in request.headers:
        key = name.decode("latin-1").upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = value.decode("latin-1")
        elif key not in ("CONTENT_LENGTH", "TRANSFER_ENCODING") and b"_" not in name:
            # A header that occurs several times is one list (RFC 9110, section 5.2).
            earlier = environ.get(f"HTTP_{key}")
            text = value.decode("latin-1")
            environ[f"HTTP_{key}"] = text if earlier is None else f"{earlier},{text}"
    return environ
