"""Fuzz the live snake's server with hundreds of thousands of damaged requests.

    python -m benchmarks.fuzz
    python -m benchmarks.fuzz --snakes minimax --requests 10000
    python -m benchmarks.fuzz --snakes minimax --requests 1000000 --minutes 30

The server deletes unfinished games after ten minutes, so memory usage is constant only in longer
runs. Use ``--minutes`` to check the memory usage.

gunicorn serves every snake. Each of several connections plays games with valid requests in two
formats: the official format, and the format of engines that list eliminated snakes. Between valid
requests, the connection sends damaged requests. The damage is replaced JSON values, removed,
doubled or replaced bytes, nested values, duplicate keys, or invalid HTTP heads. Half of the games
use maps with hazards. Requests are pipelined, and some requests arrive in two chunks.

Three responses are expected:

* for a valid move request, a move that is not certain death,
* for a damaged request that contains everything needed for a move, status 200 and a move,
* for any other request, status 4xx or a closed connection.

The exit status is 1 for any other response, a missing response, or growing memory.

If a search plays, the games have a timeout of a few milliseconds, so that the snake processes many
requests.
"""

from __future__ import annotations

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

import numpy as np
from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.boards import board_json
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MAPS, MOVES, Game
from battlesnake_server.arena.referee import ArenaRequestWriter
from benchmarks.load import read_metric, run_server
from benchmarks.request_damage import (
    change_bytes,
    damage_values,
    encode_json,
    is_playable,
    make_unusual_json,
)

_MEBIBYTE = 1 << 20
_MAX_GROWTH_FRACTION = 0.01
"""Maximum relative growth of a server's memory in the second half of the requests."""

_RESPONSE_TIMEOUT_S = 120.0
"""Response timeout in seconds, long enough for busy machines."""

_NUM_PIPELINED_REQUESTS = 8
"""Number of pipelined requests to a snake without a search."""

_SEARCH_TIMEOUT_MS, _DEFAULT_TIMEOUT_MS = 15, 500
"""Timeouts of games with a search and of games without a search, in milliseconds."""

_NUM_DAMAGED_GAMES = 1000
"""Number of different game ids of damaged requests."""

_DEFAULT_SNAKE_SIZES = ((11, 4),)
"""Board sizes and numbers of snakes for which the default snake uses no search."""

_VALID_JSON, _DAMAGED_JSON, _DAMAGED_BYTES, _INVALID_HTTP = (
    "valid",
    "damaged JSON",
    "damaged bytes",
    "broken HTTP",
)
_UNUSUAL_JSON = "unusual JSON"
_REQUEST_TYPES, _REQUEST_TYPE_WEIGHTS = (
    (_VALID_JSON, _DAMAGED_JSON, _DAMAGED_BYTES, _UNUSUAL_JSON),
    (6, 9, 3, 2),
)
_INVALID_HEAD_FRACTION = _SPLIT_FRACTION = 0.01
"""Fractions of requests with invalid HTTP heads and of batches sent in two chunks.

The server closes the connection after an invalid HTTP head.
"""

_SERVE_OPTIONS = {"default": [], "policy": ["--policy", "shipped"]}
"""Options of `serve` for the names ``default`` and ``policy``.

These names are not built-in snakes.
"""

_HAZARD_MAPS = tuple(
    sorted(name for name in MAPS if name not in ("standard", "empty", "solo_maze"))
)

_INVALID_HTTP_HEADS = (
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

MoveRequest = tuple[bytes, frozenset[str]]
"""The body of a move request, and the valid moves for the request."""


@dataclass(frozen=True)
class _FuzzRequest:
    """A request and its expected response.

    ``accepted`` is True if the server must respond with status 200, False if the server must reject
    the request, or None if both are valid. ``moves`` contains the valid moves of a response.
    """

    kind: str
    data: bytes
    accepted: bool | None = None
    moves: frozenset[str] = frozenset(MOVES)


def main() -> int:
    """Fuzz the server of every snake.

    Returns:
        The exit status: 1 if any response was unexpected.
    """
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--requests", type=int, default=10_000, help="requests per snake")
    add("--minutes", type=float, default=math.inf, help="maximum duration per snake, in minutes")
    add("--snakes", nargs="*", default=["default", "minimax", "cautious"],
        help="snakes to serve: default, policy, or built-in snakes")  # fmt: skip
    add("--connections", type=int, default=4, help="number of parallel connections")
    add("--seed", type=int, default=1, help="seed of the random requests")
    args = parser.parse_args()
    failed = False
    for name in args.snakes:
        first = 100 * args.seed
        games = [game for i in range(first, first + 8) for game in _record_game_requests(i, name)]
        chosen = _SERVE_OPTIONS.get(name, ["--snake", name])
        command = [sys.executable, "-m", "battlesnake_gym", "serve", *chosen, "--port"]
        with tempfile.TemporaryFile() as log, run_server(command, log) as port:
            counts, history = _fuzz_server(
                port,
                games,
                args.requests,
                args.connections,
                args.seed,
                _max_pipelined_requests(name),
                60 * args.minutes,
            )
            logged = log.seek(0, io.SEEK_END)
        print(f"\n{name}: {sum(counts.values())} requests, {logged} bytes of log", flush=True)
        for (kind, outcome), count in sorted(counts.items()):
            print(f"  {kind:<14} {outcome:<24} {count:>9}")
        growth, memory = history.estimate_growth()
        flat = growth < _MAX_GROWTH_FRACTION * memory
        print(
            f"  memory {memory / _MEBIBYTE:.1f} MiB, in the second half {growth / _MEBIBYTE:+.2f} "
            f"MiB: {'flat' if flat else 'NOT FLAT'}",
            flush=True,
        )
        failed |= not flat or any(outcome in _UNEXPECTED_OUTCOMES for _, outcome in counts)
    return 1 if failed else 0


_REJECTED_OUTCOME, _MOVE_OUTCOME, _CLOSED_OUTCOME = "rejected (4xx)", "a move", "closed"
_SERVER_ERROR_OUTCOME, _NO_RESPONSE_OUTCOME, _LOST_OUTCOME, _WRONG_RESPONSE_OUTCOME = (
    "SERVER ERROR (5xx)",
    "NO RESPONSE",
    "LOST",
    "WRONG RESPONSE",
)
_UNEXPECTED_OUTCOMES = (
    _SERVER_ERROR_OUTCOME,
    _NO_RESPONSE_OUTCOME,
    _LOST_OUTCOME,
    _WRONG_RESPONSE_OUTCOME,
)

OutcomeCounts = collections.Counter[tuple[str, str]]


@dataclass
class _MemoryHistory:
    """Memory of the server process over time: times in seconds, memory in bytes."""

    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def estimate_growth(self) -> tuple[float, float]:
        """Estimate the memory growth in the second half of the run.

        The slope of a least-squares line gives the growth.

        Returns:
            The growth and the mean memory, in bytes.
        """
        half = len(self.seconds) // 2
        seconds, memory = np.array(self.seconds[half:]), np.array(self.memory[half:])
        slope = np.polyfit(seconds - seconds.mean(), memory, 1)[0]
        return float(slope * (seconds[-1] - seconds[0])), float(memory.mean())


def _fuzz_server(
    port: int,
    games: list[list[MoveRequest]],
    count: int,
    connections: int,
    seed: int,
    num_pipelined: int,
    seconds: float = math.inf,
) -> tuple[OutcomeCounts, _MemoryHistory]:
    """Send ``count`` requests, or as many as possible in ``seconds``.

    Returns:
        The number of responses for each request type and outcome, and the memory over time.
    """
    counts, history = OutcomeCounts(), _MemoryHistory()
    started = time.perf_counter()
    with (
        ThreadPoolExecutor(connections) as pool,
        tqdm(total=count, disable=not sys.stderr.isatty()) as bar,
    ):
        clients = [
            _Client(port, games, random.Random(f"{seed}/{i}"), num_pipelined)
            for i in range(connections)
        ]
        done, printed = 0, 0
        while done < count and time.perf_counter() < started + seconds:
            batch_size = max(num_pipelined, min(2000, count // 50) // connections)
            for outcome in pool.map(
                lambda client, batch_size=batch_size: client.send_requests(batch_size), clients
            ):
                counts.update(outcome)
            bar.update(sum(counts.values()) - done)
            done = sum(counts.values())
            if not sys.stderr.isatty() and done >= printed + count // 20:
                print(f"{time.strftime('%H:%M:%S')} {done}: {dict(counts)}", flush=True)
                printed = done
            history.seconds.append(time.perf_counter() - started)
            history.memory.append(read_metric(port, "process_resident_memory_bytes"))
        for client in clients:
            client.close()
    return counts, history


class _Client:
    """A client that sends requests to the server over one connection at a time."""

    def __init__(
        self, port: int, games: list[list[MoveRequest]], rng: random.Random, num_pipelined: int
    ) -> None:
        self._port = port
        self._num_pipelined = num_pipelined
        self._games = games
        self._rng = rng
        self._valid = self._iter_valid_requests()
        self._socket: socket.socket | None = None
        self._received = b""

    def send_requests(self, count: int) -> OutcomeCounts:
        """Send at least ``count`` requests, read the responses and count the outcomes."""
        counts = OutcomeCounts()
        while counts.total() < count:
            if self._rng.random() < _INVALID_HEAD_FRACTION * self._num_pipelined:
                counts[_INVALID_HTTP, self._send_invalid_head()] += 1
            batch = [self._draw_request() for _ in range(self._num_pipelined)]
            for sent, outcome in zip(batch, self._send_batch(batch), strict=True):
                if outcome in _UNEXPECTED_OUTCOMES:
                    print(outcome, sent.kind, sent.data[:500], file=sys.stderr, flush=True)
                counts[sent.kind, outcome] += 1
        return counts

    def _draw_request(self) -> _FuzzRequest:
        """Draw a random valid or damaged move request."""
        kind = self._rng.choices(_REQUEST_TYPES, _REQUEST_TYPE_WEIGHTS)[0]
        if kind == _VALID_JSON:
            return next(self._valid)
        text, _ = self._rng.choice(self._rng.choice(self._games))
        # Damaged requests use other game ids than the valid requests. The number of these ids is
        # fixed, because the server stores every game. Otherwise, the memory of the server would
        # depend on the request rate.
        number = self._rng.randrange(_NUM_DAMAGED_GAMES)
        text = text.replace(b'"id":"', b'"id":"%d-' % number, 1)
        if kind == _DAMAGED_JSON:
            body = damage_values(json.loads(text), self._rng)
            return _FuzzRequest(
                kind, _format_request(self._draw_path(), encode_json(body)), is_playable(body)
            )
        if kind == _UNUSUAL_JSON:
            return _FuzzRequest(
                kind, _format_request(self._draw_path(), make_unusual_json(text, self._rng))
            )
        return _FuzzRequest(kind, _format_request(self._draw_path(), change_bytes(text, self._rng)))

    def _draw_path(self) -> bytes:
        """Draw the path of a damaged request."""
        return self._rng.choice((b"/move", b"/move", b"/move", b"/a/b/move", b"//move/"))

    def _iter_valid_requests(self) -> Iterator[_FuzzRequest]:
        """Yield the move requests and the end request for random games.

        The games follow one another.
        """
        while True:
            game = self._rng.choice(self._games)
            name = b'"id":"%d-' % self._rng.getrandbits(60)
            for text, moves in game:
                text = text.replace(b'"id":"', name, 1)
                yield _FuzzRequest(_VALID_JSON, _format_request(b"/move", text), True, moves)
            yield _FuzzRequest(_VALID_JSON, _format_request(b"/end", text), True, frozenset([""]))

    def _send_batch(self, batch: list[_FuzzRequest]) -> Iterator[str]:
        """Send pipelined requests and yield the outcome of each request."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(
                    ("127.0.0.1", self._port), _RESPONSE_TIMEOUT_S
                )
                self._received = b""
            data = b"".join(sent.data for sent in batch)
            if self._rng.random() < _SPLIT_FRACTION:
                place = self._rng.randrange(len(data))
                self._socket.sendall(data[:place])
                time.sleep(0.01)
                data = data[place:]
            self._socket.sendall(data)
        except OSError:
            self.close()
        for sent in batch:
            yield self._classify_response(sent)

    def _classify_response(self, sent: _FuzzRequest) -> str:
        """Read the response to a request and return its outcome."""
        if self._socket is None:
            return _LOST_OUTCOME
        try:
            status, content = self._read_response()
        except (OSError, EOFError) as error:
            self.close()
            return _NO_RESPONSE_OUTCOME if isinstance(error, TimeoutError) else _LOST_OUTCOME
        if status >= 500:
            return _SERVER_ERROR_OUTCOME
        if status != 200:
            return _WRONG_RESPONSE_OUTCOME if sent.accepted else _REJECTED_OUTCOME
        move = json.loads(content).get("move", "")
        if sent.accepted is False or move not in sent.moves:
            return _WRONG_RESPONSE_OUTCOME
        return _MOVE_OUTCOME if move else "end"

    def _read_response(self) -> tuple[int, bytes]:
        """Read one HTTP response and return its status and body."""
        assert self._socket is not None
        while b"\r\n\r\n" not in self._received:
            self._receive_bytes()
        head, _, rest = self._received.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        length = int(found[1]) if found else 0
        while len(rest) < length:
            self._receive_bytes()
            rest = self._received.partition(b"\r\n\r\n")[2]
        self._received = rest[length:]
        return int(head.split()[1]), rest[:length]

    def _receive_bytes(self) -> None:
        """Receive more bytes from the server."""
        assert self._socket is not None
        data = self._socket.recv(1 << 16)
        if not data:
            raise EOFError
        self._received += data

    def close(self) -> None:
        """Close the connection; the next batch opens a new connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _send_invalid_head(self) -> str:
        """Send bytes that are not a valid HTTP request, and return the outcome."""
        answer = b""
        try:
            with socket.create_connection(
                ("127.0.0.1", self._port), _RESPONSE_TIMEOUT_S
            ) as connection:
                connection.sendall(self._rng.choice(_INVALID_HTTP_HEADS))
                connection.shutdown(socket.SHUT_WR)
                while data := connection.recv(1 << 16):
                    answer += data
        except TimeoutError:
            return _NO_RESPONSE_OUTCOME
        except OSError:
            pass  # The server closed the connection during the transmission.
        if not answer:
            return _CLOSED_OUTCOME
        status = answer.split()[1]
        return (
            _SERVER_ERROR_OUTCOME
            if status >= b"5"
            else _REJECTED_OUTCOME
            if status >= b"4"
            else _WRONG_RESPONSE_OUTCOME
        )


def _max_pipelined_requests(name: str) -> int:
    """Return the number of requests to pipeline to the snake ``name``.

    The limit is 1 for a search, because a search uses its whole time budget for each request.
    """
    return 1 if name == "minimax" else _NUM_PIPELINED_REQUESTS


def _record_game_requests(seed: int, name: str) -> list[list[MoveRequest]]:
    """Play a game and return the move requests of one snake in both formats.

    Each request has the set of moves that are not certain death.
    """
    width, count = ((11, 4), (7, 2), (11, 4), (7, 3))[seed % 4]
    height, board_map = width, "standard"
    if seed % 8 > 3:
        board_map = _HAZARD_MAPS[seed // 100 * 4 % len(_HAZARD_MAPS) - seed % 4]
        width, height = MAPS[board_map].sizes[0]
    searching = name == "minimax" or (
        name == "default" and (width, count) not in _DEFAULT_SNAKE_SIZES
    )
    timeout = _SEARCH_TIMEOUT_MS if searching else _DEFAULT_TIMEOUT_MS
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
        official.append((encode_json(board_json.request_to_dict(game, board, you)), moves))
        body = {**arena(game, board, you)}
        body["game"] = body["game"] | {"id": "game"}
        listing.append((encode_json(body), moves))
    return [official, listing]


def _format_request(path: bytes, body: bytes) -> bytes:
    """Format an HTTP POST request."""
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


if __name__ == "__main__":
    sys.exit(main())
