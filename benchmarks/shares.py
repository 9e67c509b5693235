"""How the live snake thinks with a share of a core, as AWS Lambda and small containers give it.

    python -m benchmarks.shares                                       (Linux, as root)
    python -m benchmarks.shares --shares 0.29 --period 20 --memory
    python -m benchmarks.shares --shares 0 --busy 2

Runs the Lambda handler in a control group of its own with so much of a core (0: no limit), of which
it sees every core, and stops it between requests as Lambda freezes a function. It is asked the
boards of games that were played before. ``search`` counts the moves that were not the fallback's;
``of thread`` compares the positions that a move looked at with those of one thread that searches
the same boards for 450 ms in the same group (medians). With ``--memory`` the environment names
Lambda's memory, as on Lambda; without it, what the group's files say is all that is known.
``--busy`` starts so many programs beside it that take all they get.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.load import GAME_ID, PlayedGame, played_games

CHILD = """
import json, sys
answers, sys.stdout = sys.stdout, sys.stderr
from battlesnake_server.live import lambda_handler
handler = lambda_handler.handler_of({"REASONS": True})
for line in sys.stdin:
    answers.write(json.dumps(handler(json.loads(line), None)) + "\\n")
    answers.flush()
"""
ALONE = """
import json, sys
from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
search = snakes.make("champion")
for line in sys.stdin:
    body = json.loads(json.loads(line)["body"])
    found = search.think(Board.from_api(body), 0.45)[1].evaluated
    print(json.dumps({"body": json.dumps({"note": f"{found} positions valued"})}), flush=True)
"""
CONTROLLER = Path("/sys/fs/cgroup")
MEMORY_OF_A_CORE = 1769


def main() -> None:
    """Print a row for each share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shares", type=float, nargs="*", default=[1.0, 0.58, 0.29, 0.145])
    parser.add_argument("--moves", type=int, default=100, help="of each (%(default)s)")
    parser.add_argument("--period", type=int, default=100, help="of the quota, ms (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.1, help="frozen, seconds (%(default)s)")
    parser.add_argument("--busy", type=int, default=0, help="busy programs beside (%(default)s)")
    parser.add_argument("--memory", action="store_true", help="name Lambda's memory")
    options = parser.parse_args()
    games = played_games(timeout=500)
    print(
        f"{'share':>6} {'search':>8} {'p50 ms':>7} {'worst':>6} {'positions':>10} {'of thread':>10}"
    )
    with contextlib.ExitStack() as beside:
        for _ in range(options.busy):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            beside.callback(loop.wait)
            beside.callback(loop.kill)
        for share in options.shares:
            answers, seconds = asked(CHILD, share, games, options)
            thread = median_positions(asked(ALONE, share, games, options)[0])
            searched = sum("positions valued" in answer for answer in answers)
            found = median_positions(answers)
            usual, worst = 1000 * statistics.median(seconds), 1000 * max(seconds)
            print(
                f"{share:6g} {searched:4}/{len(answers):<3} {usual:7.0f} {worst:6.0f} "
                f"{found:10.0f} {found / thread:10.0%}",
                flush=True,
            )


def asked(
    program: str, share: float, games: list[PlayedGame], options: argparse.Namespace
) -> tuple[list[str], list[float]]:
    """The answers of ``program`` to a number of moves, and the seconds that each took."""
    environment = dict(os.environ)
    if options.memory:
        memory = str(round(MEMORY_OF_A_CORE * share))
        environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] = memory
    answers: list[str] = []
    seconds: list[float] = []
    with limited(share, options.period) as join:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=join,
        )
        try:
            for path, body in requests(games, options.moves, seconds):
                began = time.perf_counter()
                answer = ask(process, path, body)
                if path == "/move":
                    seconds.append(time.perf_counter() - began)
                    answers.append(answer["body"])
                process.send_signal(signal.SIGSTOP)
                time.sleep(options.pause)
        finally:
            process.kill()
            process.communicate()
    return answers, seconds


def requests(
    games: list[PlayedGame], moves: int, seconds: list[float]
) -> Iterator[tuple[str, bytes]]:
    """What an engine asks, with the latencies that it saw; the last ``seconds`` is the newest."""
    for number, game in enumerate(games):
        name = f"{GAME_ID}-{number}".encode()
        latency = b"0"
        for path, body in [("/start", game[0]), *(("/move", body) for body in game)]:
            if len(seconds) == moves:
                return
            body = body.replace(GAME_ID.encode(), name)
            yield path, body.replace(b'"latency": "0"', b'"latency": "%s"' % latency)
            latency = b"%d" % (1000 * seconds[-1]) if path == "/move" else b"0"


def ask(process: subprocess.Popen[str], path: str, body: bytes) -> Any:
    """Have the frozen ``process`` answer an event of API Gateway."""
    http = {"method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"}
    event = {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {},
        "requestContext": {"http": http, "timeEpoch": round(1000 * time.time())},
        "body": body.decode(),
        "isBase64Encoded": False,
    }
    assert process.stdin is not None
    assert process.stdout is not None
    process.send_signal(signal.SIGCONT)
    process.stdin.write(json.dumps(event) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def median_positions(answers: list[str]) -> float:
    """Of all moves; the fallback looks at none."""
    found = [re.search(r"(\d+) positions valued", answer) for answer in answers]
    return statistics.median(int(one[1]) if one else 0 for one in found)


@contextlib.contextmanager
def limited(share: float, period: int) -> Iterator[Any]:
    """A control group with this share of a core; what lets the calling process join it.

    Its weight is high, so that it is given its share however busy the machine is otherwise.
    """
    if not share:
        yield None
        return
    first = (CONTROLLER / "cpu").is_dir()  # version 1; version 2 has no such folder
    group = CONTROLLER / ("cpu" if first else "") / f"battlesnake-{os.getpid()}"
    group.mkdir()
    quota = round(share * period * 1000)
    if first:
        (group / "cpu.cfs_period_us").write_text(str(period * 1000))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
        (group / "cpu.shares").write_text("100000")
    else:
        (group / "cpu.max").write_text(f"{quota} {period * 1000}")
        (group / "cpu.weight").write_text("10000")
    try:
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        time.sleep(0.2)
        group.rmdir()


if __name__ == "__main__":
    main()
