"""Web server of the pages; the server runs in a background thread.

An event loop handles the connections, and a few threads run the application
(`battlesnake_server.http.http_protocol`).

The server accepts only requests whose ``Host`` is an IP address, this machine, or a name that the
operator allowed. This check prevents DNS rebinding. If the name of a foreign page starts to resolve
to this machine, the page receives status 421.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Iterable
from typing import Self

from battlesnake_server.http.connection_table import (
    TEXT_HEADERS,
    ConnectionTable,
    Limits,
    Request,
    SendResponse,
)
from battlesnake_server.http.http_protocol import serve
from battlesnake_server.http.wsgi_pool import Application, WsgiPool

_PAGE_REQUEST_TIMEOUT_S = 10.0
"""Request timeout of the pages in seconds.

The timeout exceeds the request timeout of the live snake, because visitors' networks may be slow.
"""

_PAGE_SEND_TIMEOUT_S = Limits().send_timeout_s

MAX_CONNECTIONS = 400
"""Maximum number of connections.

The usual limit of open files per process is 1024.
"""

MAX_REQUEST_BODY_BYTES = Limits().max_body_bytes

_PAGE_DRAIN_TIMEOUT_S = 2.0
"""Maximum duration of the pending requests after the stop, in seconds."""


class PageServer:
    """WSGI server that runs in a thread while its context is active.

    Args:
        app: WSGI application.
        listener: Listening socket.
        names: Host names allowed in addition to IP addresses and this machine's name.
        threads: Number of threads that run the application.
    """

    def __init__(
        self,
        app: Application,
        listener: socket.socket,
        *,
        names: Iterable[str] = (),
        threads: int = 8,
    ) -> None:
        self._listener = listener
        self._names = {name.lower() for name in (*names, socket.gethostname())}
        self._pool = WsgiPool(app, "page", threads)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    @property
    def port(self) -> int:
        """Port of the listener."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Finish the pending requests and stop the server."""
        with contextlib.suppress(RuntimeError):  # The event loop may have stopped.
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def wait(self) -> None:
        """Block until the server stops or the user presses Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()

    def _run(self) -> None:
        """Run the event loop until the server stops."""
        with contextlib.closing(self._loop), contextlib.closing(self._pool):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        """Serve connections until the context ends."""
        limits = Limits(
            request_timeout_s=_PAGE_REQUEST_TIMEOUT_S,
            send_timeout_s=_PAGE_SEND_TIMEOUT_S,
            max_connections=MAX_CONNECTIONS,
        )
        await serve(
            ConnectionTable(self._dispatch, limits),
            [self._listener],
            self._stopped,
            drain_timeout_s=_PAGE_DRAIN_TIMEOUT_S,
        )

    def _dispatch(self, request: Request, answer: SendResponse) -> None:
        """Pass a request to the thread pool if its host name is known."""
        if self._has_known_host(request):
            self._pool.dispatch(request, answer)
        else:
            answer("421 Misdirected Request", TEXT_HEADERS, _UNKNOWN_HOST_MESSAGE.encode() + b"\n")

    def _has_known_host(self, request: Request) -> bool:
        """Return whether the request has exactly one known ``Host`` header."""
        given = [value.decode("latin1") for name, value in request.headers if name == b"host"]
        return len(given) == 1 and _is_known_host(given[0], self._names)


_UNKNOWN_HOST_MESSAGE = (
    "unknown host name; use the IP address, or restart the server with --allow-host and this name"
)


def _is_known_host(header: str, names: Iterable[str]) -> bool:
    """Return whether a ``Host`` header is an IP address, localhost or an allowed name.

    >>> [_is_known_host(host, ["lan"]) for host in ("127.0.0.1:8791", "[::1]", "Lan.:80")]
    [True, True, True]
    >>> _is_known_host("rebound.example:8791", ["lan"])
    False
    """
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::\d{1,5})?", header.lower())
    if found is None:
        return False
    host = found[1] or found[2].removesuffix(".")
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
