"""Whether broken requests upset the live snake: hundreds of thousands of them, to real servers.

    python -m benchmarks.fuzz
    python -m benchmarks.fuzz --snakes minimax --requests 10000
    python -m benchmarks.fuzz --snakes minimax --requests 1000000 --minutes 30
    python -m benchmarks.fuzz --kept parts.jsonl

With ``--kept`` a run is a part of a longer one: its seed is the next that the file has not, and
what came is added to the file and shown as a sum over all parts.

Games that never ended are forgotten after ten minutes, so memory is level only in runs that last
longer: give ``--minutes`` to see whether it is flat.

Every snake is served under gunicorn. Each of several connections plays games, whose requests are
valid and in both forms (the official one, and that of engines that list dead snakes), and between
their moves sends others with damage: a value replaced by another one somewhere in the JSON, bytes
cut, doubled or replaced, values that nest, keys that are there twice, heads of HTTP that are none.
Half of the games are of maps with hazards; requests come together, and now and then in two pieces.
What must come back is known: for a valid move one that is not certain death, for damage that leaves
what a move needs status 200 and a move, for all else status 4xx or a closed connection. Everything
else is counted and ends in status 1: 5xx, no answer in time, a wrong one, or memory that grows.

Where a search plays, timeouts are a few milliseconds, so that it gets through many requests.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import math
import random
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.boards import board_json
from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MAPS, MOVES, Game
from battlesnake_server.arena.referee import ArenaRequestWriter
from benchmarks.load import metric, served

_MEBIBYTE = 1 << 20
_FLAT = 0.01
"""Share of its memory that a server may grow by in the second half of the requests."""

_PATIENCE = 120.0
"""Seconds after which an answer is missing, on a machine that may be busy with other work."""

_IN_A_ROW = 8
"""Requests that are sent to a quick snake before the first answer is read."""

_SEARCHING_MS, _USUAL_MS = 15, 500
"""The games' timeouts where a search plays, and elsewhere."""

_OTHER_GAMES = 1000
"""Games of which a damaged request may be."""

_USUAL_GAMES = ((11, 4),)
"""Side and snakes of the games that the default snake plays without a search."""

_VALID, _DAMAGED, _BYTES, _HEADS = "valid", "damaged JSON", "damaged bytes", "broken HTTP"
_STRANGE = "strange JSON"
_KINDS, _WEIGHTS = (_VALID, _DAMAGED, _BYTES, _STRANGE), (6, 9, 3, 2)
_HEADS_SHARE = _SPLIT_SHARE = 0.01
"""Broken heads cost a connection each, and requests in two pieces a pause between them."""

_CHOICES = {"default": [], "policy": ["--policy", "shipped"]}
"""How those are served that are no names of snakes."""

_MAZES = tuple(sorted(name for name in MAPS if name not in ("standard", "empty", "solo_maze")))

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 3.5, 1e300, float("nan"), float("inf"), 10**30, 10**400,
    -(10**400), 2**31, 2**63, "", "x", "0", "up", "you", "\ud800", "\0", "é" * 50, "x" * 5000,
    [], {}, [[]], [{}], [None], [1, 2], {"x": 1}, {"x": 1, "y": 2}, [{"x": 1, "y": 2}],
    {"id": "a"}, {"settings": 3}, [{"x": 10**20, "y": 0}] * 3, [{"id": "a", "body": []}] * 100,
)  # fmt: skip

_DEPTHS = (10, 100, 500, *range(900, 1000, 5), 5000, 20_000, 100_000)
"""How deep a value nests: what the parser takes, what it refuses, and what lies between."""

_BROKEN_HEADS = (
    b"\r\n\r\n", b"GET\r\n\r\n", b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /move HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"POST /move HTTP/9.9\r\n\r\n",
    b"POST /move HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /move HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /move HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"POST /move HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n",
    b"POST /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"POST /move HTTP/1.1\r\nX" * 50,
    b"POST /%ff%00 HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    b"POST * HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", bytes(range(256)),
)  # fmt: skip

PlayedTurn = tuple[bytes, frozenset[str]]
"""A request's body, and the moves that may be answered."""


@dataclass(frozen=True)
class Sent:
    """A request, and what must come back: status 200, another one, or either (None)."""

    kind: str
    data: bytes
    accepted: bool | None = None
    moves: frozenset[str] = frozenset(MOVES)


def main() -> int:
    """Fuzz every snake's server; the exit status is 1 where anything was upset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000, help="a snake (%(default)s)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="a snake, at most")
    parser.add_argument("--snakes", nargs="*", default=["default", "minimax", "cautious"])
    parser.add_argument("--connections", type=int, default=4, help="at once (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kept", type=Path, help="a file of JSON lines: what came so far")
    args = parser.parse_args()
    upset = False
    for name in args.snakes:
        parts = [] if args.kept is None else kept(args.kept, name)
        seed = args.seed + len(parts)
        games = [game for i in range(100 * seed, 100 * seed + 8) for game in played(i, name)]
        chosen = _CHOICES.get(name, ["--snake", name])
        command = [sys.executable, "-m", "battlesnake_gym", "serve", *chosen, "--port"]
        with tempfile.TemporaryFile() as log, served(command, log) as port:
            counts, course = fuzz(
                port,
                games,
                args.requests,
                args.connections,
                seed,
                in_a_row(name),
                60 * args.minutes,
            )
            logged = log.seek(0, io.SEEK_END)
        if args.kept is not None:
            results = [[*which, count] for which, count in sorted(counts.items())]
            parts += [{"snake": name, "seed": seed, "log": logged, "came": results}]
            with args.kept.open("a") as file:
                print(json.dumps(parts[-1]), file=file)
            counts = sum(
                (Counts({(a, b): n for a, b, n in part["came"]}) for part in parts), Counts()
            )
            logged = sum(part["log"] for part in parts)
        print(f"\n{name}: {sum(counts.values())} requests, {logged} bytes of log", flush=True)
        for (kind, came), count in sorted(counts.items()):
            print(f"  {kind:<14} {came:<24} {count:>9}")
        growth, memory = course.growth()
        flat = growth < _FLAT * memory
        print(
            f"  memory {memory / _MEBIBYTE:.1f} MiB, in the second half {growth / _MEBIBYTE:+.2f} "
            f"MiB: {'flat' if flat else 'NOT _FLAT'}",
            flush=True,
        )
        upset |= not flat or any(came in _UPSET for _, came in counts)
    return 1 if upset else 0


def kept(path: Path, name: str) -> list[dict[str, Any]]:
    """The parts of a run against ``name`` that are done."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [part for part in map(json.loads, lines) if part["snake"] == name]


_REFUSED, _MOVED, _CLOSED = "refused (4xx)", "a move", "closed"
_FAILED, _SILENT, _LOST, _WRONG = "SERVER ERROR (5xx)", "NO ANSWER", "LOST", "WRONG ANSWER"
_UPSET = (_FAILED, _SILENT, _LOST, _WRONG)

Counts = collections.Counter[tuple[str, str]]


@dataclass
class Course:
    """The server's memory in bytes as time went on, in seconds."""

    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def growth(self) -> tuple[float, float]:
        """Of the second half: bytes grown (least squares), and the mean memory."""
        half = len(self.seconds) // 2
        seconds, memory = np.array(self.seconds[half:]), np.array(self.memory[half:])
        slope = np.polyfit(seconds - seconds.mean(), memory, 1)[0]
        return float(slope * (seconds[-1] - seconds[0])), float(memory.mean())


def fuzz(
    port: int,
    games: list[list[PlayedTurn]],
    count: int,
    connections: int,
    seed: int,
    in_a_row: int,
    seconds: float = math.inf,
) -> tuple[Counts, Course]:
    """Send ``count`` requests, or as many as ``seconds`` allow.

    Gives what came back, by kind, and the course of the memory.
    """
    counts, course = Counts(), Course()
    began = time.perf_counter()
    with (
        ThreadPoolExecutor(connections) as pool,
        tqdm(total=count, disable=not sys.stderr.isatty()) as bar,
    ):
        lines = [
            Line(port, games, random.Random(f"{seed}/{i}"), in_a_row) for i in range(connections)
        ]
        done, printed = 0, 0
        while done < count and time.perf_counter() < began + seconds:
            share = max(in_a_row, min(2000, count // 50) // connections)
            for came in pool.map(lambda line, share=share: line.run(share), lines):
                counts.update(came)
            bar.update(sum(counts.values()) - done)
            done = sum(counts.values())
            if not sys.stderr.isatty() and done >= printed + count // 20:
                print(f"{time.strftime('%H:%M:%S')} {done}: {dict(counts)}", flush=True)
                printed = done
            course.seconds.append(time.perf_counter() - began)
            course.memory.append(metric(port, "process_resident_memory_bytes"))
        for line in lines:
            line.close()
    return counts, course


class Line:
    """One connection after the other, and what is sent over them."""

    def __init__(
        self, port: int, games: list[list[PlayedTurn]], luck: random.Random, in_a_row: int
    ) -> None:
        self._port = port
        self._in_a_row = in_a_row
        self._games = games
        self._luck = luck
        self._valid = self._play()
        self._socket: socket.socket | None = None
        self._received = b""

    def run(self, count: int) -> Counts:
        """Send about ``count`` requests and read the answers."""
        counts = Counts()
        while counts.total() < count:
            if self._luck.random() < _HEADS_SHARE * self._in_a_row:
                counts[_HEADS, self._send_broken()] += 1
            batch = [self._next() for _ in range(self._in_a_row)]
            for sent, came in zip(batch, self._exchange(batch), strict=True):
                if came in _UPSET:
                    print(came, sent.kind, sent.data[:500], file=sys.stderr, flush=True)
                counts[sent.kind, came] += 1
        return counts

    def _next(self) -> Sent:
        kind = self._luck.choices(_KINDS, _WEIGHTS)[0]
        if kind == _VALID:
            return next(self._valid)
        text, _ = self._luck.choice(self._luck.choice(self._games))
        # Other games than those that are played. Not more than can be remembered at once: else the
        # memory would show how many requests a second there were of late.
        number = self._luck.randrange(_OTHER_GAMES)
        text = text.replace(b'"id":"', b'"id":"%d-' % number, 1)
        if kind == _DAMAGED:
            body = damaged(json.loads(text), self._luck)
            return Sent(kind, request(self._path(), written(body)), playable(body))
        if kind == _STRANGE:
            return Sent(kind, request(self._path(), strange(text, self._luck)))
        return Sent(kind, request(self._path(), cut(text, self._luck)))

    def _path(self) -> bytes:
        return self._luck.choice((b"/move", b"/move", b"/move", b"/a/b/move", b"//move/"))

    def _play(self) -> Iterator[Sent]:
        """The requests of one game after the other."""
        while True:
            game = self._luck.choice(self._games)
            name = b'"id":"%d-' % self._luck.getrandbits(60)
            for text, moves in game:
                text = text.replace(b'"id":"', name, 1)
                yield Sent(_VALID, request(b"/move", text), True, moves)
            yield Sent(_VALID, request(b"/end", text), True, frozenset([""]))

    def _exchange(self, batch: list[Sent]) -> Iterator[str]:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), _PATIENCE)
                self._received = b""
            data = b"".join(sent.data for sent in batch)
            if self._luck.random() < _SPLIT_SHARE:
                place = self._luck.randrange(len(data))
                self._socket.sendall(data[:place])
                time.sleep(0.01)
                data = data[place:]
            self._socket.sendall(data)
        except OSError:
            self.close()
        for sent in batch:
            yield self._judge(sent)

    def _judge(self, sent: Sent) -> str:
        if self._socket is None:
            return _LOST
        try:
            status, content = self._read()
        except (OSError, EOFError) as error:
            self.close()
            return _SILENT if isinstance(error, TimeoutError) else _LOST
        if status >= 500:
            return _FAILED
        if status != 200:
            return _WRONG if sent.accepted else _REFUSED
        move = json.loads(content).get("move", "")
        if sent.accepted is False or move not in sent.moves:
            return _WRONG
        return _MOVED if move else "end"

    def _read(self) -> tuple[int, bytes]:
        assert self._socket is not None
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, rest = self._received.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        length = int(found[1]) if found else 0
        while len(rest) < length:
            self._more()
            rest = self._received.partition(b"\r\n\r\n")[2]
        self._received = rest[length:]
        return int(head.split()[1]), rest[:length]

    def _more(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(1 << 16)
        if not data:
            raise EOFError
        self._received += data

    def close(self) -> None:
        """Close the connection; the next batch opens another one."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _send_broken(self) -> str:
        """What comes back for bytes that are no request."""
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", self._port), _PATIENCE) as connection:
                connection.sendall(self._luck.choice(_BROKEN_HEADS))
                connection.shutdown(socket.SHUT_WR)
                while data := connection.recv(1 << 16):
                    answer += data
        except TimeoutError:
            return _SILENT
        except OSError:
            pass  # closed while we were still sending
        if not answer:
            return _CLOSED
        status = answer.split()[1]
        return _FAILED if status >= b"5" else _REFUSED if status >= b"4" else _WRONG


def in_a_row(name: str) -> int:
    """How many requests to send at once: a search needs all of its time for each."""
    return 1 if name == "minimax" else _IN_A_ROW


def played(seed: int, name: str) -> list[list[PlayedTurn]]:
    """The requests of one game, once in each form, with the moves that are not certain death."""
    width, count = ((11, 4), (7, 2), (11, 4), (7, 3))[seed % 4]
    height, board_map = width, "standard"
    if seed % 8 > 3:
        board_map = _MAZES[seed // 100 * 4 % len(_MAZES) - seed % 4]
        width, height = MAPS[board_map].sizes[0]
    searching = name == "minimax" or (name == "default" and (width, count) not in _USUAL_GAMES)
    timeout = _SEARCHING_MS if searching else _USUAL_MS
    game = Game(map=board_map, seed=seed + 1, id="game", timeout=timeout)
    first, arena = Board.new(width, height, count, game=game), ArenaRequestWriter()
    players = {snake.id: snakes.make("hungry", seed) for snake in first.snakes}
    official, listing = [], []
    me = first.snakes[seed % count].id
    for board in Replay.from_play(first, players, max_turns=150).boards():
        if board.is_over() or not board.snake(me).alive:
            break
        moves = frozenset(board.safe_moves(me) or MOVES)
        you = board.snake(me)
        official.append((written(board_json.write(game, board, you)), moves))
        body = {**arena(game, board, you)}
        body["game"] = body["game"] | {"id": "game"}
        listing.append((written(body), moves))
    return [official, listing]


def written(body: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(body, separators=(",", ":")).encode()


def request(path: bytes, body: bytes) -> bytes:
    """A request over HTTP."""
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


def damaged(body: Any, luck: random.Random) -> Any:
    """``body`` with one to three values replaced or taken out."""
    for _ in range(luck.randint(1, 3)):
        parent, key = body, luck.choice(list(body))
        while isinstance(parent[key], dict | list) and parent[key] and luck.random() < 0.93:
            parent = parent[key]
            key = (
                luck.choice(list(parent))
                if isinstance(parent, dict)
                else luck.randrange(len(parent))
            )
        if isinstance(parent, dict) and luck.random() < 0.15:
            del parent[key]
            if not body:
                break
        else:
            parent[key] = json.loads(json.dumps(luck.choice(_VALUES)))
    return body


def cut(text: bytes, luck: random.Random) -> bytes:
    """``text`` with some bytes cut out, doubled or replaced."""
    start = luck.randrange(len(text))
    end = start + luck.randint(0, 20)
    by = luck.choice((b"", luck.randbytes(3), text[start:end] * 2, b'"', b"{", b"9" * 5000, b","))
    return text[:start] + by + text[end:]


def strange(text: bytes, luck: random.Random) -> bytes:
    """``text`` with a value that nests, a key that is there twice, or in another encoding."""
    entry: re.Match[bytes] = luck.choice(list(re.finditer(rb'"\w+":(\d+|"[^"]*")', text)))
    match luck.randrange(3):
        case 0:
            depth, left, right = (
                luck.choice(_DEPTHS),
                *luck.choice(((b"[", b"]"), (b'{"a":', b"}"))),
            )
            if depth > 20_000:
                left, right = b"[", b"]"  # more bytes than that are refused unread
            nested: bytes = left * depth + b"1" + right * depth
            return text[: entry.start(1)] + nested + text[entry.end(1) :]
        case 1:
            again = entry[0].replace(entry[1], written(luck.choice(_VALUES)))
            return text[: entry.start()] + again + b"," + text[entry.start() :]
        case _:
            encoding = luck.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "utf-16-le"))
            return text.decode().encode(encoding)


def playable(body: Any) -> bool:
    """Whether the game's id, our id, the board's size and our body are there."""

    def whole(value: Any) -> bool:
        return type(value) is int or (type(value) is float and value.is_integer())

    def named(value: Any) -> bool:
        return isinstance(value, dict) and isinstance(value.get("id"), str) and value["id"] != ""

    game, board, you = (body.get(key) for key in ("game", "board", "you"))
    if not named(game) or not named(you) or not isinstance(board, dict):
        return False
    sides: list[Any] = [board.get("width"), board.get("height")]
    if not all(whole(side) and 1 <= side <= 100 for side in sides):
        return False
    cells = you.get("body")
    if not isinstance(cells, list) or not cells:
        return False
    if not all(
        isinstance(cell, dict) and whole(cell.get("x")) and whole(cell.get("y")) for cell in cells
    ):
        return False
    width, height = sides
    return any(0 <= cell["x"] < width and 0 <= cell["y"] < height for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
