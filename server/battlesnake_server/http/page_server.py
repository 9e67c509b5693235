"""The web server of the pages, in a thread beside whatever else the process does.

An event loop holds the connections, a few threads answer (`battlesnake_server.http.http_protocol`).

Only requests whose ``Host`` is an address, this machine or a name that the operator gave are
answered: a page elsewhere whose name suddenly leads to this machine (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Iterable

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
"""Longer than the live snake's: a person's network may be slow."""

_PAGE_SEND_TIMEOUT_S = Limits().send_timeout_s

MAX_CONNECTIONS = 400
"""Below what a process may usually open (1024 files)."""

MAX_REQUEST_BYTES = Limits().max_body_bytes

_PAGE_DRAIN_TIMEOUT_S = 2.0
"""How long requests are answered after the end."""


class PageServer:
    """Answers on ``listener`` for a WSGI application, from `start` to `stop`.

    ``names`` are hosts that requests may name besides addresses and this machine; ``threads`` make
    answers.
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
        self._lane = WsgiPool(app, "page", threads)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def wait(self) -> None:
        """Return when interrupted."""
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()

    def stop(self) -> None:
        """Answer no more requests."""
        with contextlib.suppress(RuntimeError):  # it has stopped before
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._loop), contextlib.closing(self._lane):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
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
        if self._knows(request):
            self._lane.dispatch(request, answer)
        else:
            answer("421 Misdirected Request", TEXT_HEADERS, _UNKNOWN_HOST_MESSAGE.encode() + b"\n")

    def _knows(self, request: Request) -> bool:
        given = [value.decode("latin1") for name, value in request.headers if name == b"host"]
        return len(given) == 1 and is_known_host(given[0], self._names)


_UNKNOWN_HOST_MESSAGE = (
    "this host name is not known here; use the address, or name it with --allow-host at the start"
)


def is_known_host(header: str, names: Iterable[str]) -> bool:
    """Whether a ``Host`` header names this machine: by an address, as localhost, or by a name.

    >>> [is_known_host(host, ["arena.lan"]) for host in ("127.0.0.1:8791", "[::1]", "Arena.lan:80")]
    [True, True, True]
    >>> is_known_host("rebound.example:8791", ["arena.lan"])
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
