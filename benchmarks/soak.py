"""Whether the live snake stays well for long: half an hour of games, and what memory does.

    python -m benchmarks.soak
    python -m benchmarks.soak --minutes 10 --games 50 --snake minimax

Many games at once are played against the real server, one after the other from ``/start`` to
``/end``; every tenth breaks off without ``/end``, and every game begins with a broken request. The
server's memory (RSS), the games it holds and the answers that were late or lost are printed as time
passes. At the end a line is fitted through the memory of the second half: "flat" is what grew by
less than a hundredth there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks import load

MEBIBYTE = 1 << 20
FLAT = 0.01
"""Share of its memory that a server may grow by in the second half; ten bytes a move are more."""

BROKEN = (b"", b"{", b"[]", b"[" * 10_000, b"\x80\x04.", b'{"game": {"id": 1}}', b" " * 100_000)


@dataclass
class Course:
    """What was seen as time went on, in seconds and bytes."""

    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def growth(self) -> tuple[float, float, float]:
        """Of the second half: bytes grown (least squares), seconds, and the mean memory."""
        half = len(self.seconds) // 2
        seconds, memory = np.array(self.seconds[half:]), np.array(self.memory[half:])
        slope = np.polyfit(seconds - seconds.mean(), memory, 1)[0]
        passed = seconds[-1] - seconds[0]
        return float(slope * passed), float(passed), float(memory.mean())


def main() -> int:
    """Play, watch, and say whether memory is flat; the exit status is 1 where it is not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="how long (%(default)s)")
    parser.add_argument("--games", type=int, default=100, help="games at once (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between (%(default)s)")
    parser.add_argument("--every", type=float, default=30, help="seconds a row (%(default)s)")
    parser.add_argument("--timeout", type=int, default=500, help="of the games, ms (%(default)s)")
    snake = parser.add_mutually_exclusive_group()
    snake.add_argument("--policy", type=Path, help="a policy.onnx for 11x11 boards")
    snake.add_argument("--snake", help="a named snake instead of a policy")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        policy = args.policy or load.random_policy(Path(folder))
        who = ["--snake", args.snake] if args.snake else ["--policy", str(policy), "--heuristics"]
        command = [sys.executable, "-m", "battlesnake_gym", "serve", *who, "--port"]
        with load.served(command) as port:
            course = asyncio.run(soak(port, args))
    growth, seconds, memory = course.growth()
    flat = growth < FLAT * memory
    print(
        f"the last {seconds / 60:.1f} minutes: {memory / MEBIBYTE:.1f} MiB, "
        f"{growth / MEBIBYTE:+.3f} MiB grown ({3600 * growth / seconds / MEBIBYTE:+.3f} an hour): "
        f"{'flat' if flat else 'NOT FLAT'}"
    )
    return 0 if flat else 1


async def soak(port: int, args: argparse.Namespace) -> Course:
    """Keep the games going and print a row now and then."""
    recorded = load.played_games(args.timeout)
    end = time.perf_counter() + 60 * args.minutes
    tally = load.Tally()
    players = [
        asyncio.create_task(engine(port, number, recorded, args, tally, end))
        for number in range(args.games)
    ]
    course = await watch(port, args, tally, end)
    await asyncio.gather(*players)
    return course


async def engine(
    port: int,
    number: int,
    recorded: list[load.PlayedGame],
    args: argparse.Namespace,
    tally: load.Tally,
    end: float,
) -> None:
    """Play one game after the other."""
    connection = load.Connection(port)
    await asyncio.sleep(args.pause * number / args.games)
    count = number
    while time.perf_counter() < end:
        with contextlib.suppress(ConnectionError):  # as it should be: status 400
            await connection.post("/move", BROKEN[count % len(BROKEN)])
        game = recorded[count % len(recorded)]
        broken_off = count % 10 == 0
        name = f"engine-{number}-game-{count}"
        await load.play(connection, game, name, args.pause, tally, end, ends=not broken_off)
        count += 1
    connection.close()


async def watch(port: int, args: argparse.Namespace, tally: load.Tally, end: float) -> Course:
    """Print memory, games and answers of each interval."""
    course = Course()
    began = time.perf_counter()
    headings = ("minutes", "RSS MiB", "games", "moves", "p99 ms", "worst", "late", "lost", "load")
    print("".join(f"{heading:>9}" for heading in headings), flush=True)
    with tqdm(total=round(end - began), unit="s", disable=not sys.stderr.isatty()) as bar:
        while (left := end - time.perf_counter()) > 0:
            await asyncio.sleep(min(args.every, left))
            now = time.perf_counter() - began
            rss, games = await asyncio.gather(
                asyncio.to_thread(load.metric, port, "process_resident_memory_bytes"),
                asyncio.to_thread(load.metric, port, "battlesnake_games_alive"),
            )
            course.seconds.append(now)
            course.memory.append(rss)
            answers = 1000 * np.array(tally.seconds or [np.nan])
            late = int((answers > args.timeout).sum())
            bar.write(
                f"{now / 60:9.1f}{rss / MEBIBYTE:9.1f}{games:9.0f}{len(tally.seconds):9}"
                f"{np.percentile(answers, 99):9.1f}{answers.max():9.1f}{late:9}{tally.lost:9}"
                f"{os.getloadavg()[0]:9.1f}",
                file=sys.stdout,
            )
            sys.stdout.flush()
            tally.clear()
            bar.update(round(now) - bar.n)
    return course


if __name__ == "__main__":
    sys.exit(main())
