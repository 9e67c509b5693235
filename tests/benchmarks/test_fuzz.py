"""The fuzzer against a real server, and against one that is upset by everything."""

from __future__ import annotations

import contextlib
import random
import socketserver
import sys
import threading

import pytest

from benchmarks import fuzz
from benchmarks.load import served


@pytest.mark.parametrize("snake", ["cautious", "minimax"])
def test_broken_requests_upset_no_server(snake: str) -> None:
    games = [game for seed in range(2) for game in fuzz.played(seed, snake)]
    command = [sys.executable, "-m", "battlesnake_gym", "serve", "--snake", snake, "--port"]
    with served(command) as port:
        counts, _ = fuzz.fuzz(port, games, 400, 2, 1, fuzz.in_a_row(snake))
    assert counts.total() >= 400
    assert not [came for _, came in counts if came in fuzz.UPSET]
    assert counts[fuzz.VALID, fuzz.MOVED] > 50
    assert counts[fuzz.DAMAGED, fuzz.MOVED] > 50
    assert counts[fuzz.DAMAGED, fuzz.REFUSED] > 20


class Upset(socketserver.StreamRequestHandler):
    """Fails, moves wrongly, refuses and hangs up, in turn."""

    def handle(self) -> None:
        wrong = b'{"move": "back"}'
        answers = (
            b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(wrong), wrong),
            b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n",
        )
        with contextlib.suppress(OSError):
            for answer in answers * 3:
                self.wfile.write(answer)


def test_an_upset_server_is_noticed() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Upset) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            line = fuzz.Line(
                server.server_address[1], fuzz.played(0, "cautious"), random.Random(1), 8
            )
            counts = line.run(60)
            line.close()
        finally:
            server.shutdown()
            thread.join()
    came = {what for _, what in counts}
    assert {fuzz.FAILED, fuzz.WRONG, fuzz.LOST} <= came
