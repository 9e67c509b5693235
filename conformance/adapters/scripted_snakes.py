"""HTTP snakes that replay a recording for the official command line."""

from __future__ import annotations

import contextlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread

from server_loop import Json

boards: Queue[Json] = Queue()
scripted_moves: dict[str, Queue[str]] = {}


class _SnakeHandler(BaseHTTPRequestHandler):
    """Request handler of all snakes of a game.

    Each snake has its own path. The first living snake puts the board into the queue ``boards``.
    """

    def do_POST(self) -> None:
        """Respond to a move request with the recorded move of the snake."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        name, what = self.path.strip("/").partition("/")[::2]
        living = [snake["name"] for snake in body.get("board", {"snakes": []})["snakes"]]
        if (living[:1] == [name] and what == "move") or (not living and what == "end"):
            boards.put(body)
        move = scripted_moves[name].get() if what == "move" else "up"
        text = json.dumps({"apiversion": "1", "move": move}).encode()
        with contextlib.suppress(OSError):  # A killed command line no longer reads the response.
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Discard the log messages for the requests."""


def start_server() -> str:
    """Start the server of the snakes and return its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _SnakeHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
