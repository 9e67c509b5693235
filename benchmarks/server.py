"""How fast the live snake answers: many games at once over real sockets.

    python benchmarks/server.py
    python benchmarks/server.py --games 100 --pause 0 --snakes cautious --policy demo/policy.onnx

Plays the boards of games that were played before, every game on a connection of its own, from
several client processes: an answer, ``--pause`` seconds of waiting for the other snakes, the next
turn. In the same run a bare Flask route shows what gunicorn, Flask and this machine cost without
any thinking. Without ``--policy`` a network of the usual shape with random weights is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask, request
from numpy.typing import NDArray

# This file's folder comes first on the path, where the file hides the package of its name.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

from battlesnake_gym import observations, snakes  # noqa: E402
from battlesnake_gym.board import Board  # noqa: E402
from battlesnake_gym.rules import MOVES, Game  # noqa: E402
from server.serve import Gunicorn  # noqa: E402

GAME_ID = "a-game-id-of-its-own"
CHANNELS, STRIDES, WIDTH = (32, 64, 64), (1, 2, 2), 256


def main() -> None:
    """Measure every kind of snake and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=100, help="games at once (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="for each row (%(default)s)")
    parser.add_argument("--clients", type=int, default=2, help="client processes (%(default)s)")
    parser.add_argument("--timeout", type=int, default=500, help="of the games, ms (%(default)s)")
    parser.add_argument("--policy", type=Path, help="a policy.onnx for 11x11 boards")
    parser.add_argument("--snakes", nargs="*", default=["minimax"], help="named snakes to measure")
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        serve_bare(args.bare)
        return
    bodies = played_bodies(args.timeout)
    print(f"{args.games} games at once, {args.pause * 1000:.0f} ms between an answer and the next")
    print(f"{'':<22}{'moves/s':>9}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'worst':>9}{'lost':>6}")
    with tempfile.TemporaryDirectory() as folder:
        policy = args.policy or random_policy(Path(folder))
        serve = [sys.executable, "-m", "battlesnake_gym", "serve"]
        rows = {
            "bare Flask route": [sys.executable, __file__, "--bare"],
            "policy + heuristics": [*serve, "--policy", str(policy), "--heuristics", "--port"],
        }
        rows |= {name: [*serve, "--snake", name, "--port"] for name in args.snakes}
        for name, command in rows.items():
            with served(command) as port:
                print(f"{name:<22}{measure(port, bodies, args)}", flush=True)


def measure(port: int, bodies: list[bytes], args: argparse.Namespace) -> str:
    """Ask the server at ``port`` from several processes; one row of the table."""
    games = [args.games // args.clients] * args.clients
    games[0] += args.games % args.clients
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.clients, mp_context=context) as clients:
        futures = [
            clients.submit(load, port, bodies, 1000 * i, count, args.pause, args.seconds)
            for i, count in enumerate(games)
        ]
        parts = [future.result() for future in futures]
    times = 1000 * np.concatenate([times for times, _ in parts])
    lost = sum(lost for _, lost in parts)
    p50, p95, p99 = np.percentile(times, [50, 95, 99])
    rate = len(times) / args.seconds
    return f"{rate:9.0f}{p50:9.1f}{p95:9.1f}{p99:9.1f}{times.max():9.1f}{lost:6}"


def load(
    port: int, bodies: list[bytes], first: int, games: int, pause: float, seconds: float
) -> tuple[list[float], int]:
    """Play ``games`` games for some seconds; the seconds of every answer, and the lost ones."""
    times: list[float] = []
    lost = 0

    async def play(number: int, end: float) -> None:
        nonlocal lost
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        game = f"game-{first + number}".encode()
        await asyncio.sleep(pause * number / games)
        turn, latency = 7 * number, b"0"
        while time.perf_counter() < end:
            body = bodies[turn % len(bodies)].replace(GAME_ID.encode(), game)
            body = body.replace(b'"latency": "0"', b'"latency": "%s"' % latency)
            turn += 1
            head = f"POST /move HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            began = time.perf_counter()
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            move = json.loads(await reader.readexactly(length)).get("move")
            times.append(time.perf_counter() - began)
            latency = b"%d" % (1000 * times[-1])
            lost += not answer.startswith(b"HTTP/1.1 200") or move not in MOVES
            await asyncio.sleep(pause)
        writer.close()

    async def play_all() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(play(number, end) for number in range(games)))

    asyncio.run(play_all())
    return times, lost


def played_bodies(timeout: int) -> list[bytes]:
    """Requests from games of four careful snakes, in the order they were asked."""
    bodies = []
    for seed in range(1, 9):
        game = Game(seed=1_000_000 * seed, id=GAME_ID, timeout=timeout)
        board = Board.new(11, 11, 4, game=game)
        players = {snake.id: snakes.make("cautious", seed) for snake in board.snakes}
        while not board.is_over():
            bodies.append(json.dumps(board.to_api(board.living[0].id)).encode())
            moves = {}
            for snake in board.living:
                board.you_id = snake.id
                moves[snake.id] = players[snake.id](board).move
            board.step(moves)
    return bodies


def random_policy(folder: Path) -> Path:
    """A network of the shape that training makes by default, with random weights."""
    from onnx import TensorProto, helper, numpy_helper, save

    encoder = observations.get("planes")
    channels, height, width = shape = encoder.shape(11, 11)
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Cast", ["observations"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["x", "scale"], ["layer0"]),
    ]
    weights: dict[str, NDArray[np.float32]] = {"scale": np.array(255, np.float32)}
    for i, (count, stride) in enumerate(zip(CHANNELS, STRIDES, strict=True)):
        weights[f"w{i}"] = rng.normal(0, 0.05, (count, channels, 3, 3)).astype(np.float32)
        conv = helper.make_node("Conv", [f"layer{i}", f"w{i}"], [f"conv{i}"])
        for attribute, value in (("strides", [stride] * 2), ("pads", [1] * 4)):
            conv.attribute.append(helper.make_attribute(attribute, value))
        nodes += [
            conv,
            helper.make_node("Relu", [f"conv{i}"], [f"layer{i + 1}"]),
        ]
        channels, height, width = count, (height - 1) // stride + 1, (width - 1) // stride + 1
    sizes = [channels * height * width, WIDTH, len(MOVES)]
    weights["dense"] = rng.normal(0, 0.05, sizes[:2]).astype(np.float32)
    weights["head"] = rng.normal(0, 0.05, sizes[1:]).astype(np.float32)
    nodes += [
        helper.make_node("Flatten", [f"layer{len(CHANNELS)}"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["features"]),
        helper.make_node("MatMul", ["features", "head"], ["q_values"]),
    ]
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("observations", TensorProto.UINT8, ["batch", *shape])],
        [helper.make_tensor_value_info("q_values", TensorProto.FLOAT, ["batch", len(MOVES)])],
        [numpy_helper.from_array(weight, name) for name, weight in weights.items()],
    )
    path = folder / "policy.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    metadata: dict[str, Any] = {
        "format": 1,
        "observation": encoder.to_dict(),
        "board_sizes": [[11, 11]],
        "actions": list(MOVES),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    path.with_suffix(".json").write_text(json.dumps(metadata))
    return path


def serve_bare(port: int) -> None:
    """A Flask route that reads its request and thinks nothing, under the same gunicorn."""

    def make_app() -> Flask:
        app = Flask("bare")

        @app.post("/move")
        def move() -> dict[str, str]:
            request.get_data()
            return {"move": "up", "shout": ""}

        return app

    sys.argv = sys.argv[:1]
    Gunicorn(make_app, f"127.0.0.1:{port}", 64).run()


@contextmanager
def served(command: list[str]) -> Iterator[int]:
    """Run a server (the port is the command's last word) while the block lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([*command, str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).close()
                break
            except urllib.error.HTTPError:
                break  # the bare route has no such page
            except OSError:
                time.sleep(0.1)
        else:
            raise SystemExit(f"{' '.join(command)} does not answer")
        yield port
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
