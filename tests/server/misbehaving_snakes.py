"""Misbehaving snakes on real sockets, for tests of the referee."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

GOOD = b'{"move": "left", "shout": "hello"}'

NEVER = 60.0
"""Delay of snakes that never respond, in seconds; longer than every timeout."""

Behavior = Callable[[socket.socket, bytes, bytes], bool | None]
"""Responds to one request (head, body) on its connection; True keeps the connection open."""


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Build an HTTP response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def says(response: bytes) -> Behavior:
    """Return a behavior that sends these bytes for every request."""

    def behave(connection: socket.socket, head: bytes, body: bytes) -> bool:
        connection.sendall(response)
        return True

    return behave


def answers(body: bytes, status: str = "200 OK", *headers: str) -> Behavior:
    """Return a snake that gives the same response to every request."""
    return says(http(body, status, *headers))


def hangs(connection: socket.socket, head: bytes, body: bytes) -> None:
    """Never respond."""
    time.sleep(NEVER)


def closes(connection: socket.socket, head: bytes, body: bytes) -> None:
    """Close the connection without a response."""


def pours(first: bytes, more: bytes, pause: float = 0.0) -> Behavior:
    """Return a behavior that sends ``first``, then ``more`` every ``pause`` seconds."""

    def behave(connection: socket.socket, head: bytes, body: bytes) -> None:
        end = time.monotonic() + NEVER
        with contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + first)
            while time.monotonic() < end:
                connection.sendall(more)
                time.sleep(pause)

    return behave


drips = pours(b"X: ", b"a", 0.05)
"""An endless header, one byte at a time, so that no single read times out."""
drips_body = pours(b"Content-Length: 9999\r\n\r\n", b" ", 0.05)
"""A valid head, then a body that arrives one byte at a time."""
floods = pours(b"Content-Length: 10000000000\r\n\r\n", b"x" * 65536)
"""An endless body."""
floods_head = pours(b"X: ", b"x" * 65536)
"""An endless head."""


def circles(connection: socket.socket, head: bytes, body: bytes) -> bool:
    """Redirect to itself forever."""
    connection.sendall(http(b"", "302 Found", "Location: /again"))
    return True


class Recorder:
    """A well-behaved snake that records every request: (request line, headers, body)."""

    def __init__(self, answer: Callable[[bytes], bytes] = lambda body: GOOD) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections: set[int] = set()
        self._answer = answer

    def __call__(self, connection: socket.socket, head: bytes, body: bytes) -> bool:
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        self.requests.append((first, headers, body))
        self.connections.add(id(connection))
        looks = {"color": "#112233", "head": "evil", "tail": "bolt"}
        if head.startswith(b"GET "):
            connection.sendall(http(json.dumps({"apiversion": "1", **looks, "x": 1}).encode()))
        elif b"/move" in head.split(b"\r\n")[0]:
            connection.sendall(http(self._answer(body)))
        else:
            connection.sendall(http(b""))
        return True

    def told(self, what: str) -> list[Any]:
        """Return the decoded bodies of all requests to this endpoint."""
        return [json.loads(body) for line, _, body in self.requests if f"/{what}" in line]


def read_request(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Read the next request's head and body; return None if the peer has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, body = data.split(b"\r\n\r\n", 1)
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += connection.recv(65536)
    return head, body


@contextlib.contextmanager
def snake(behavior: Behavior) -> Iterator[str]:
    """Run a server on loopback with this behavior; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_connection(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := read_request(connection):
                if not behavior(connection, *request):
                    return

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve_connection, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


PROGRAM = """
import json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def burn():
    end = time.thread_time() + float(sys.argv[1])
    while time.thread_time() < end:
        pass

class Snake(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer({})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/move":
            if sys.argv[2] == "process":  # which ends before the response
                if not (child := os.fork()):
                    burn()
                    os._exit(0)
                os.waitpid(child, 0)
            elif sys.argv[2] == "thread":
                (thread := threading.Thread(target=burn)).start()
                thread.join()
        self.answer({"move": "right"})
    def answer(self, said):
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass

port = sys.argv[3] if len(sys.argv) > 3 else os.environ["PORT"]
ThreadingHTTPServer(("127.0.0.1", int(port)), Snake).serve_forever()
"""
"""A snake program that always moves right.

Arguments: CPU seconds per move; ``thread`` or ``process`` to use them, ``nobody`` for none; and the
port, unless the environment variable PORT is set.
"""
