"""The HTTP server of the live snake and the pages: slow readers, responses without a body."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterable
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
    """WSGI application: a large response, status 304, a request's parts, or a small response."""
    path = environ["PATH_INFO"]
    if path.startswith("/parts"):
        start("200 OK", [("Content-Type", "text/plain")])
        body = environ["wsgi.input"].read().decode()
        parts = environ["REQUEST_METHOD"], path, environ["QUERY_STRING"], body
        return [" ".join((*parts, environ.get("HTTP_X", ""))).encode()]
    if path == "/old":
        start("304 Not Modified", [("ETag", '"a"')])
        return []
    start("200 OK", [("Content-Type", "text/plain")])
    return [LARGE if path == "/large" else b"small"]


def serving() -> PageServer:
    return PageServer(application, socket.create_server(("127.0.0.1", 0)), threads=1)


def connect(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def read_small(connection: socket.socket) -> bytes:
    """Read until the end of a small response."""
    received = b""
    while not received.endswith(b"small"):
        received += connection.recv(1 << 18)
    return received


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
        closes = last.startswith(b"Connection")
        received = read_all(connection, 0.01) if closes else read_small(connection)
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


def test_too_many_bodies_cost_only_the_oldest_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(**limits: Any) -> Limits:
        return Limits(**limits, max_pending_body_bytes=100)

    monkeypatch.setattr(page_server, "Limits", few)
    with serving() as server, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(connect(server)) for _ in range(4)]
        for client in clients:
            client.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 31\r\n\r\n")
            client.sendall(b"x" * 30)
            time.sleep(0.1)
        assert read_all(clients[0]) == b""
        for client in clients[1:]:
            client.sendall(b"x")
            assert client.recv(1 << 18).startswith(b"HTTP/1.1 200")


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


@pytest.mark.parametrize(
    "offer", [b"Upgrade: websocket\r\n", b"Upgrade: h2c\r\nHTTP2-Settings: AAE\r\n"]
)
def test_an_offered_protocol_is_ignored_in_every_request(offer: bytes) -> None:
    """Java's HTTP client offers HTTP/2 with every request."""
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nContent-Length: 1\r\n"
    with serving() as server, connect(server) as connection:
        for _ in range(2):
            connection.sendall(head + offer + b"\r\n")
            time.sleep(0.02)
            connection.sendall(b"x")
            received = read_small(connection)
            assert received.startswith(b"HTTP/1.1 200")
            assert b"Upgrade" not in received


def test_a_client_that_closes_its_sending_side_gets_its_responses() -> None:
    with serving() as server:
        for _ in range(20):
            with connect(server) as connection:
                connection.sendall(2 * b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                received = read_all(connection)
            assert received.count(b"HTTP/1.1 200") == received.count(b"small") == 2
            # Both responses may leave before the end of the client's data arrives.
            assert received.count(b"Connection: close") <= 1


def test_keep_alive_of_http_1_0_is_confirmed() -> None:
    with serving() as server, connect(server) as connection:
        for option, answer in ((b"Keep-Alive", b"keep-alive"), (b"close", b"close")):
            head = b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: "
            connection.sendall(head + option + b"\r\n\r\n")
            assert b"\r\nConnection: " + answer + b"\r\n" in read_small(connection)
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


ACCEPTED = {
    "an empty line before it": (b"\r\nGET /parts HTTP/1.1", b"", b"GET /parts   "),
    "an absolute target": (b"GET http://127.0.0.1/parts?b HTTP/1.1", b"", b"GET /parts b  "),
    "escapes": (b"GET /parts%20%2f%zz?%41 HTTP/1.1", b"", b"GET /parts /%zz %41  "),
    "a fragment": (b"GET /parts#b HTTP/1.1", b"", b"GET /parts   "),
    "spaces around a value": (b"GET /parts HTTP/1.1", b"X: \t a\tb \r\n\r\n", b"GET /parts   a\tb"),
    "an empty value": (b"GET /parts HTTP/1.1", b"X:\r\n\r\n", b"GET /parts   "),
    "a repeated header": (b"GET /parts HTTP/1.1", b"X: a\r\nX: b\r\n\r\n", b"GET /parts   a,b"),
    "a body of a GET": (b"GET /parts HTTP/1.1", b"Content-Length: 1\r\n\r\nx", b"GET /parts  x "),
    "a padded length": (b"PUT /parts HTTP/1.1", b"Content-Length:  1 \r\n\r\nx", b"PUT /parts  x "),
    "an empty line after it": (
        b"PUT /parts HTTP/1.1", b"Content-Length: 1\r\n\r\nx\r\n", b"PUT /parts  x ",
    ),
    "chunks with extensions and a trailer": (
        b"PUT /parts HTTP/1.1",
        b"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\nA\r\n0123456789\r\n0\r\nEnd: z\r\n\r\n",
        b"PUT /parts  x0123456789 ",
    ),
    "a request after the last one": (
        b"GET /parts HTTP/1.1", b"\r\nGET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /parts   ",
    ),
    "an offered protocol": (
        b"PUT /parts HTTP/1.1",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\nx", b"PUT /parts  x ",
    ),
}  # fmt: skip
"""Request lines with their last headers and body, and what the application receives."""


@pytest.mark.parametrize("piece", [1, 1 << 16])
@pytest.mark.parametrize("case", ACCEPTED)
def test_unusual_requests_arrive_complete(case: str, piece: int) -> None:
    """The pieces of a request may have any size."""
    line, rest, parts = ACCEPTED[case]
    request = line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + (rest or b"\r\n")
    with serving() as server, connect(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(request), piece):
            connection.sendall(request[start : start + piece])
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == parts


def test_bytes_after_the_last_request_do_not_cost_the_response() -> None:
    """The server reads them until the client has read the response and closes."""
    with serving() as server, connect(server) as connection:
        connection.sendall(b"GET /parts HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        until(lambda: connection.recv(1 << 16, socket.MSG_PEEK))
        for _ in range(20):
            connection.sendall(b"GET /x HTTP/1.1\r\n")
            time.sleep(0.005)
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"GET /parts   "


@pytest.mark.parametrize(
    "request_line",
    [
        b"get / HTTP/1.1", b"SNAKE / HTTP/1.1", b"GET  HTTP/1.1", b"GET /a b HTTP/1.1",
        b"GET / HTTP/1.2", b"GET / HTTP/3.0", b"GET / HTTP/1.1x", b"GET / http/1.1",
        b"PRI * HTTP/2.0\r\n\r\nSM", b"\x16\x03\x01\x02\x00\x01",
    ],
)  # fmt: skip
def test_a_wrong_request_line_is_rejected(request_line: bytes) -> None:
    assert rejected(request_line + b"\r\nHost: 127.0.0.1\r\n\r\n")


@pytest.mark.parametrize(
    "rest",
    [
        b"X : a\r\n\r\n", b": a\r\n\r\n", b"X(y): a\r\n\r\n", b"X: a\r\n folded\r\n\r\n",
        b"X: a\0b\r\n\r\n", b"X: a\x01b\r\n\r\n", b"X: a\rY: b\r\n\r\n", b"X: a\nY: b\n\n",
        *(b"Content-Length: %s\r\n\r\nx" % length
          for length in (b"", b"-1", b"+1", b"0x1", b"1_0", b"1, 1", b"9" * 30)),
        b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip\r\n\r\nx", b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        *(b"Transfer-Encoding: chunked\r\n\r\n%s\r\nxxx\r\n0\r\n\r\n" % size
          for size in (b"g", b"-1", b"2", b"f" * 20)),
    ],
)  # fmt: skip
def test_headers_and_lengths_with_two_readings_are_rejected(rest: bytes) -> None:
    """Request smuggling uses requests that two servers read differently."""
    assert rejected(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + rest)


@pytest.mark.parametrize(
    "headers",
    [b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"],
)
def test_a_body_with_another_transfer_coding_is_rejected(headers: bytes) -> None:
    assert rejected(b"POST / HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n\r\n0\r\n\r\n", 501)


def rejected(request: bytes, status: int = 400) -> bool:
    """Return whether ``status`` is the only response, and the server closes the connection."""
    with serving() as server, connect(server) as connection:
        connection.sendall(request)
        received = read_all(connection)
    return received.startswith(b"HTTP/1.1 %d" % status) and received.count(b"HTTP/1.1") == 1
