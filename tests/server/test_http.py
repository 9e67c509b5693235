"""The HTTP server of the live snake and the pages: slow readers, responses without a body."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from battlesnake_server.http import page_server
from battlesnake_server.http.connection_table import Limits
from battlesnake_server.http.page_server import PageServer
from tests.processes import PATIENCE, until
from tests.server.test_page_server import ask

LARGE = b"x" * (8 << 20)
GET = b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """WSGI application with a large response, status 304, or a small response."""
    path = environ["PATH_INFO"]
    if path == "/old":
        start("304 Not Modified", [("ETag", '"a"')])
        return []
    start("200 OK", [("Content-Type", "text/plain")])
    return [LARGE if path == "/large" else b"small"]


@contextlib.contextmanager
def serving() -> Iterator[PageServer]:
    server = PageServer(application, socket.create_server(("127.0.0.1", 0)), threads=1)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def read_all(connection: socket.socket, pause: float = 0.0) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 18):
            received += piece
            time.sleep(pause)
    return received


@pytest.mark.parametrize(
    "last", [b"Connection: close\r\n\r\n", b"\r\n" + GET.replace(b"large", b"x")]
)
def test_a_slow_reader_gets_all_of_it(last: bytes) -> None:
    """Test it also if the connection ends afterwards, or if another request is waiting."""
    with serving() as server, connect(server) as connection:
        connection.sendall(GET + last + b"\r\n")
        if last.startswith(b"Connection"):
            received = read_all(connection, 0.01)
        else:
            received = b""
            while not received.endswith(b"small"):
                received += connection.recv(1 << 18)
        assert received.count(LARGE) == 1


def test_one_who_asks_to_close_and_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "_PAGE_SEND_TIMEOUT_S", 0.3)
    with serving() as server, connect(server) as connection:
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        time.sleep(0.1)
        assert ask(server.port)[0] == 200, "it keeps no thread"
        time.sleep(1.5)
        assert len(read_all(connection)) < len(LARGE)


def test_answers_that_nobody_reads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(**limits: Any) -> Limits:
        return Limits(**limits, max_unsent_bytes=len(LARGE))

    monkeypatch.setattr(page_server, "Limits", few)
    with serving() as server, contextlib.ExitStack() as unread:
        for _ in range(3):
            one = unread.enter_context(connect(server))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            one.sendall(GET + b"\r\n")
            one.recv(100)
        assert ask(server.port)[0] == 503
        unread.close()
        until(lambda: ask(server.port)[0] == 200)


def test_answers_without_a_body_have_none() -> None:
    """The second response on the connection must start after the headers of the first."""
    with serving() as server, connect(server) as connection:
        connection.sendall(b"HEAD / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n")
        connection.sendall(b"GET /old HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        first, second, rest = read_all(connection).split(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 421")
        assert b"Content-Length: 0" not in first
        assert second.startswith(b"HTTP/1.1 304")
        assert b"Content-Length" not in second
        assert rest == b""


def test_an_offered_websocket_is_a_request() -> None:
    with serving() as server:
        status, _, headers = ask(server.port, Connection="Upgrade", Upgrade="websocket")
        assert (status, headers["Upgrade"]) == (200, None)


def test_a_client_that_closes_its_sending_side_gets_its_responses() -> None:
    with serving() as server:
        for _ in range(20):
            with connect(server) as connection:
                connection.sendall(2 * b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                received = read_all(connection)
            assert received.count(b"HTTP/1.1 200") == received.count(b"small") == 2
            assert received.count(b"Connection: close") == 1


def test_keep_alive_of_http_1_0_is_confirmed() -> None:
    with serving() as server, connect(server) as connection:
        for option, answer in ((b"Keep-Alive", b"keep-alive"), (b"close", b"close")):
            head = b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: "
            connection.sendall(head + option + b"\r\n\r\n")
            received = b""
            while not received.endswith(b"small"):
                received += connection.recv(1 << 12)
            assert b"\r\nConnection: " + answer + b"\r\n" in received
        assert read_all(connection) == b""


@pytest.mark.parametrize(("version", "expected"), [(b"1.1", True), (b"1.0", False)])
def test_only_http_1_1_has_100_continue(version: bytes, expected: bool) -> None:
    head = b"POST / HTTP/%s\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 1\r\n"
    with serving() as server, connect(server) as connection:
        connection.sendall(head % version + b"Expect: 100-Continue\r\n\r\nx")
        assert read_all(connection).startswith(b"HTTP/1.1 100 Continue") == expected


def test_a_rejected_tunnel_names_the_allowed_methods() -> None:
    with serving() as server, connect(server) as connection:
        connection.sendall(b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n")
        head, _, _ = read_all(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405")
        assert b"\r\nAllow: GET, HEAD, POST" in head
