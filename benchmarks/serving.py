"""Measure the response times of the live snake over real sockets.

    python -m benchmarks.serving
    python -m benchmarks.serving --games 100 --pause 0 --snakes cautious --policy demo/policy.onnx

Several client processes send the boards of recorded games, each game over its own connection. After
each request, a client waits ``--pause`` seconds for the other snakes and sends the next turn. The
same run measures an empty Flask route, which shows the cost of gunicorn, Flask and the machine.
Without ``--policy``, the benchmark measures the default policy.

``slow`` is the number of moves that took more than 100 ms. ``lost`` is the number of moves without
a valid response within the game's timeout. ``CPU ms`` is the server's CPU time per move. Unlike the
response times, the CPU time hardly depends on the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask, request
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, Game
from battlesnake_server.commands.serve_command import GunicornServer
from battlesnake_server.strategy_loader import DEFAULT_POLICY_PATH

_PLACEHOLDER_GAME_ID = "a-game-id-of-its-own"
_RESPONSE_TIMEOUT_S = 10.0
"""Response timeout, in seconds."""

_PlayedGame = list[bytes]
"""The request bodies of a game, in order."""

_SLOW_REQUEST_S = 0.1
_COLUMN_HEADINGS = ("moves/s", "p50 ms", "p95 ms", "p99 ms", "worst", "slow", "lost", "CPU ms")


def main() -> None:
    """Measure each server and print one row per server."""
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--games", type=int, default=100, help="number of concurrent games")
    add("--pause", type=float, default=0.1,
        help="pause between a response and the next request, in seconds")  # fmt: skip
    add("--seconds", type=float, default=10, help="duration of a measurement, in seconds")
    add("--clients", type=int, default=2, help="number of client processes")
    add("--timeout", type=int, default=500, help="timeout per move, in milliseconds")
    add("--policy", type=Path, default=DEFAULT_POLICY_PATH,
        help="policy file for 11x11 boards (default: the shipped policy)")  # fmt: skip
    add("--snakes", nargs="*", default=["minimax"], help="built-in snakes to measure")
    add("--bare", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        _serve_empty_route(args.bare)
        return
    recorded = _record_games(args.timeout)
    print(
        f"{args.games} concurrent games, {args.pause * 1000:.0f} ms between a response and the "
        "next request"
    )
    print(f"{'':<22}" + "".join(f"{heading:>8}" for heading in _COLUMN_HEADINGS) + "    load")
    serve = [sys.executable, "-m", "battlesnake_gym", "serve"]
    rows = {
        "bare Flask route": [sys.executable, "-m", "benchmarks.serving", "--bare"],
        "policy + filters": [*serve, "--policy", str(args.policy), "--filters", "--port"],
    }
    rows |= {name: [*serve, "--snake", name, "--port"] for name in args.snakes}
    for name, command in rows.items():
        with _run_server(command) as port:
            row = _measure_server(port, recorded, args)
        print(f"{name:<22}{row}{os.getloadavg()[0]:8.1f}", flush=True)


def _measure_server(port: int, recorded: list[_PlayedGame], args: argparse.Namespace) -> str:
    """Measure a server and format the results as one row of the table.

    Several processes send the requests.
    """
    before = _read_cpu_seconds(port)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.clients, mp_context=context) as clients:
        load = partial(_generate_load, port, recorded, args)
        found = list(clients.map(load, range(args.clients)))
    cpu = _read_cpu_seconds(port) - before
    times = np.concatenate([one.seconds for one in found])
    lost = sum(one.lost for one in found)
    late = int((times > args.timeout / 1000).sum())
    slow = int((times > _SLOW_REQUEST_S).sum())
    p50, p95, p99 = 1000 * np.percentile(times, [50, 95, 99])
    return (
        f"{len(times) / args.seconds:8.0f}{p50:8.1f}{p95:8.1f}{p99:8.1f}{1000 * times.max():8.1f}"
        f"{slow:8}{lost + late:8}{1000 * cpu / len(times):8.2f}"
    )


def _generate_load(
    port: int, recorded: list[_PlayedGame], args: argparse.Namespace, client: int
) -> _ResponseStats:
    """Play the games of one client process concurrently, and return the response times."""
    tally = _ResponseStats()

    async def play_games(number: int, end: float) -> None:
        """Play games one after another over one connection until the time ``end``."""
        connection = _Connection(port)
        await asyncio.sleep(args.pause * number / args.games)
        for game in itertools.count(number):
            name = f"engine-{number}-game-{game}"
            bodies = recorded[game % len(recorded)]
            await _request_moves(connection, bodies, name, args.pause, tally, end)
            if time.perf_counter() > end:
                break
        connection.close()

    async def play_all_games() -> None:
        """Play the games of all simulated engines concurrently."""
        end = time.perf_counter() + args.seconds
        numbers = range(client, args.games, args.clients)
        await asyncio.gather(*(play_games(number, end) for number in numbers))

    asyncio.run(play_all_games())
    return tally


def _serve_empty_route(port: int) -> None:
    """Serve an empty Flask route with the gunicorn settings of the live snake.

    The route reads the body of the request.
    """

    def make_app() -> Flask:
        """Create the Flask app with the empty route."""
        app = Flask("bare")
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        @app.post("/<path>")
        def respond(path: str) -> dict[str, str]:
            request.get_data()
            return {"move": "up", "shout": ""}

        @app.get("/healthz")
        def healthz() -> str:
            return ""

        @app.get("/metrics")
        def metrics() -> bytes:
            return generate_latest(registry)

        return app

    sys.argv = sys.argv[:1]
    GunicornServer(make_app, f"127.0.0.1:{port}", 64).run()


def _record_games(timeout: int, count: int = 8) -> list[_PlayedGame]:
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
class _ResponseStats:
    """Response times of valid moves, and the number of failed requests.

    The times are in seconds. A request fails if it gets no valid move.
    """

    seconds: list[float] = field(default_factory=list)
    lost: int = 0


class _Connection:
    """A keep-alive connection from one simulated game engine to the snake's server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> Any:
        """Send a request and return the decoded JSON response.

        Raises:
            OSError: If the connection fails.
            EOFError: If the server closes the connection.
            ValueError: If the response has another status than 200, or is not JSON.
        """
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


async def _request_moves(
    connection: _Connection,
    game: _PlayedGame,
    name: str,
    pause: float,
    tally: _ResponseStats,
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
            async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
                response = await connection.post(path, body)
            if path == "/move":
                MOVES.index(response["move"])
                tally.seconds.append(time.perf_counter() - started)
        except (OSError, EOFError, ValueError, KeyError):
            connection.close()
            tally.lost += 1
        latency = b"%d" % (1000 * (time.perf_counter() - started))
        if time.perf_counter() > end:
            break
        await asyncio.sleep(pause)


def _read_cpu_seconds(port: int) -> float:
    """Read the server's CPU time from ``/metrics``."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        text = response.read().decode()
    (seconds,) = re.findall(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
    return float(seconds)


@contextmanager
def _run_server(command: list[str]) -> Iterator[int]:
    """Run a server while the context is active, and yield the port.

    The function appends the port to ``command``.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([*command, str(port)], stderr=subprocess.DEVNULL)
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


if __name__ == "__main__":
    main()
