"""Snakes that a command line asks over HTTP; they answer with moves of a recording."""

from __future__ import annotations

import contextlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread

from server_loop import Json

boards: Queue[Json] = Queue()
answers: dict[str, Queue[str]] = {}


class Snakes(BaseHTTPRequestHandler):
    """All snakes of a game, each at its path; the first one that lives hands the board on."""

    def do_POST(self) -> None:
        """Answer with the move of the recording."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        name, what = self.path.strip("/").partition("/")[::2]
        living = [snake["name"] for snake in body.get("board", {"snakes": []})["snakes"]]
        if (living[:1] == [name] and what == "move") or (not living and what == "end"):
            boards.put(body)
        move = answers[name].get() if what == "move" else "up"
        text = json.dumps({"apiversion": "1", "move": move}).encode()
        with contextlib.suppress(OSError):  # a game that was stopped waits for nothing
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Leave stderr to the command line."""


def listen() -> str:
    """Serve from now on, at the address that is given back."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Snakes)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
