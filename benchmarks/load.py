"""Recorded games, servers and clients, shared by the load tests of the live snake."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, Game

_PLACEHOLDER_GAME_ID = "a-game-id-of-its-own"
_RESPONSE_TIMEOUT_S = 10.0
"""Response timeout, in seconds."""

PlayedGame = list[bytes]
"""The request bodies of a game, in order."""


def record_games(timeout: int, count: int = 8) -> list[PlayedGame]:
    """Play games of four ``cautious`` snakes and return the request bodies.

    The result contains one list per game. The requests contain ``timeout``, in milliseconds.
    """
    games = []
    for seed in range(1, count + 1):
        game = Game(seed=1_000_000 * seed, id=_PLACEHOLDER_GAME_ID, timeout=timeout)
        board = Board.new(11, 11, 4, game=game)
        players = {snake.id: snakes.make("cautious", seed) for snake in board.snakes}
        *boards, _ = Replay.from_play(board, players).boards()
        games.append([json.dumps(one.to_api(one.living[0].id)).encode() for one in boards])
    return games


@dataclass
class ResponseStats:
    """Response times of valid moves, and the number of failed requests.

    The times are in seconds. A request fails if it gets no valid move.
    """

    seconds: list[float] = field(default_factory=list)
    lost: int = 0

    def add(self, other: ResponseStats) -> None:
        """Add the results of ``other``."""
        self.seconds += other.seconds
        self.lost += other.lost


class Connection:
    """A keep-alive connection from one simulated game engine to the snake's server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> Any:
        """Send a request and return the JSON response.

        Raises:
            ConnectionError: If the request fails.
        """
        try:
            async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
                return await self._exchange(path, body)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise ConnectionError(str(error)) from error

    async def _exchange(self, path: str, body: bytes) -> Any:
        """Send a request over the connection and return the decoded JSON response."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        response = await reader.readuntil(b"\r\n\r\n")
        length = int(response.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        content = await reader.readexactly(length)
        if not response.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"{response.splitlines()[0]!r}: {content!r}")
        return json.loads(content)

    def close(self) -> None:
        """Close the connection; the next request opens a new connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def request_moves(
    connection: Connection,
    game: PlayedGame,
    name: str,
    pause: float,
    tally: ResponseStats,
    end: float,
) -> None:
    """Send the requests for a game until the game or the time ends.

    The function sends ``/start``, the move requests, and ``/end``, in the order of a game engine.
    Each move request contains the latency of the previous move. ``end`` is a time of
    `time.perf_counter`.
    """
    latency = b"0"
    moves = (("/move", body) for body in game)
    for path, recorded in [("/start", game[0]), *moves, ("/end", game[-1])]:
        body = recorded.replace(_PLACEHOLDER_GAME_ID.encode(), name.encode())
        body = body.replace(b'"latency": "0"', b'"latency": "%s"' % latency)
        started = time.perf_counter()
        try:
            response = await connection.post(path, body)
            if path == "/move":
                if not isinstance(response, dict) or response.get("move") not in MOVES:
                    raise ValueError(f"not a move: {response}")
                tally.seconds.append(time.perf_counter() - started)
        except (OSError, ValueError):
            tally.lost += 1
        latency = b"%d" % (1000 * (time.perf_counter() - started))
        if time.perf_counter() > end:
            break
        await asyncio.sleep(pause)


def read_metric(port: int, name: str) -> float:
    """Read the value of a metric from the server's ``/metrics``."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        text = response.read().decode()
    match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    if match is None:
        raise KeyError(f"/metrics has no {name}")
    return float(match[1])


@contextmanager
def run_server(command: list[str], log: IO[bytes] | int = subprocess.DEVNULL) -> Iterator[int]:
    """Run a server while the context is active, and yield the port.

    The function appends the port to ``command``.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([*command, str(port)], stderr=log)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError(f"the server exited: {' '.join(command)}") from None
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()
