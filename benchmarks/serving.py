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
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from flask import Flask, request
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from battlesnake_gym.common.command_line import Parser
from battlesnake_server.commands.serve_command import GunicornServer
from battlesnake_server.strategy_loader import DEFAULT_POLICY_PATH
from benchmarks.load import (
    Connection,
    PlayedGame,
    ResponseStats,
    read_metric,
    record_games,
    request_moves,
    run_server,
)

_SLOW_REQUEST_S = 0.1
_CPU_SECONDS_METRIC = "process_cpu_seconds_total"
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
    recorded = record_games(args.timeout)
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
        with run_server(command) as port:
            row = _measure_server(port, recorded, args)
        print(f"{name:<22}{row}{os.getloadavg()[0]:8.1f}", flush=True)


def _measure_server(port: int, recorded: list[PlayedGame], args: argparse.Namespace) -> str:
    """Measure a server and format the results as one row of the table.

    Several processes send the requests.
    """
    counts = [args.games // args.clients] * args.clients
    counts[0] += args.games % args.clients
    before = read_metric(port, _CPU_SECONDS_METRIC)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.clients, mp_context=context) as clients:
        futures = [
            clients.submit(
                _generate_load, port, recorded, f"client-{i}", count, args.pause, args.seconds
            )
            for i, count in enumerate(counts)
        ]
        tally = ResponseStats()
        for future in futures:
            tally.add(future.result())
    cpu = read_metric(port, _CPU_SECONDS_METRIC) - before
    times = np.array(tally.seconds)
    late = int((times > args.timeout / 1000).sum())
    slow = int((times > _SLOW_REQUEST_S).sum())
    p50, p95, p99 = 1000 * np.percentile(times, [50, 95, 99])
    return (
        f"{len(times) / args.seconds:8.0f}{p50:8.1f}{p95:8.1f}{p99:8.1f}{1000 * times.max():8.1f}"
        f"{slow:8}{tally.lost + late:8}{1000 * cpu / len(times):8.2f}"
    )


def _generate_load(
    port: int, recorded: list[PlayedGame], client: str, count: int, pause: float, seconds: float
) -> ResponseStats:
    """Play ``count`` games concurrently and return the response times.

    The games run for ``seconds`` seconds.
    """
    tally = ResponseStats()

    async def play_games(number: int, end: float) -> None:
        """Play games one after another over one connection until the time ``end``."""
        connection = Connection(port)
        await asyncio.sleep(pause * number / count)
        for game in range(number, number + 1_000_000):
            name = f"{client}-engine-{number}-game-{game}"
            await request_moves(connection, recorded[game % len(recorded)], name, pause, tally, end)
            if time.perf_counter() > end:
                break
        connection.close()

    async def play_all_games() -> None:
        """Play the games of all simulated engines concurrently."""
        end = time.perf_counter() + seconds
        await asyncio.gather(*(play_games(number, end) for number in range(count)))

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


if __name__ == "__main__":
    main()
