"""Clients that try to disturb the live snake's games: real servers, real sockets."""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import os
import resource
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_server.http.thread_pool import NICE_INCREMENT
from tests.processes import fetch

PATIENCE = 0.7
"""Seconds for a response in the honest game, which allows 0.5 s, on an idle machine; see `Pace`."""


class Pace:
    """Measures the machine's slowness during a block: wall-clock seconds per second of computing.

    A test of deadlines scales its limits by this factor on a busy machine. With ``steps_back``, the
    measuring thread lowers its priority like a search thread.
    """

    def __init__(self, steps_back: int = 0) -> None:
        self._steps_back = steps_back

    def __enter__(self) -> Pace:
        self._over, self._slowness = threading.Event(), [1.0]
        self._thread = threading.Thread(target=self._measure)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _measure(self) -> None:
        if self._steps_back:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._steps_back)
        while not self._over.wait(0.05):
            began, worked = time.perf_counter(), time.thread_time()
            while time.thread_time() - worked < 0.01:
                pass
            self._slowness.append((time.perf_counter() - began) / 0.01)

    @property
    def slowness(self) -> float:
        """Return the wall-clock seconds per second of computing, at least 1."""
        return max(1.0, sum(self._slowness) / len(self._slowness))

    @property
    def patience(self) -> float:
        """Return the timeout of a response in seconds, at the slowest measured pace."""
        return PATIENCE * max(self._slowness)


LOUD = """
import dataclasses, sys
from battlesnake_server import strategy_loader
from battlesnake_server.live import app, live_snake as snake
from battlesnake_server.commands import serve_command

build = app.strategy_factory

def loud(*named, **options):
    make = build(*named, **options)
    snake.is_instant = lambda strategy: strategy_loader.is_instant(make(0))

    def factory(seed):
        strategy = make(seed)

        def tell(board, seconds=None):
            return dataclasses.replace(strategy(board, seconds), shout="I have thought")

        return tell

    return factory

app.strategy_factory = loud
sys.exit(serve_command.main(sys.argv[1:]))
"""
"""Server whose shout tells whether the strategy, not the fallback, has chosen the move."""


@pytest.fixture(scope="module")
def loud(serve: Callable[..., str]) -> Callable[..., str]:
    """Start such a server once per snake; return its URL."""
    return functools.cache(functools.partial(serve, program=(sys.executable, "-c", LOUD)))


def connect(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def post(body: bytes) -> bytes:
    return b"POST /move HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def answered(connection: socket.socket) -> dict[str, Any]:
    """Return the JSON object of the next response, which must be a success."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert answer.status == 200
    body: dict[str, Any] = json.loads(answer.read())
    return body


@dataclass
class Honest:
    """Result of an honest game: seconds per move, and whether the strategy chose it."""

    seconds: list[float] = field(default_factory=list)
    thought: list[bool] = field(default_factory=list)


def honest_game(
    address: str, turns: int, *, split: bool = False, new: bool = False, padding: int = 0
) -> Honest:
    """Play on one connection, or a ``new`` one per move; ``split`` requests into two packets.

    Every body has ``padding`` additional bytes.
    """
    board = Board.new(11, 11, 4, game=Game(seed=7, id=f"honest-{split}-{new}", timeout=500))
    seen, connection = Honest(), connect(address)
    for turn in range(turns):
        if new:
            connection.close()
        began = time.perf_counter()
        if new:
            connection = connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = post(json.dumps(board.to_api("snake_0") | {"turn": turn}).encode() + b" " * padding)
        if split:
            connection.sendall(data[:300])
            time.sleep(0.02)
            began += 0.02
            data = data[300:]
        connection.sendall(data)
        body = answered(connection)
        seen.seconds.append(time.perf_counter() - began)
        assert body["move"] in board.safe_moves("snake_0")
        seen.thought.append(body["shout"] != "")
        time.sleep(0.05)
    connection.close()
    return seen


def healthy(address: str) -> float:
    """Return the seconds that ``/healthz`` takes on a new connection."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"{address}/healthz", timeout=20) as answer:
        assert answer.status == 200
    return time.perf_counter() - began


@contextlib.contextmanager
def meanwhile(work: Callable[[threading.Event], None], threads: int = 1) -> Iterator[None]:
    """Run ``work`` in threads until the block ends; its event is set at the end."""
    over, errors = threading.Event(), []

    def run() -> None:
        try:
            work(over)
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        over.set()
        for worker in workers:
            worker.join()
    assert not errors, errors


TIMEOUTS = (10**9, 500, 10**400, 100, 10_000, 1)


def short_request(number: int, timeout: int) -> bytes:
    """Build a request with the smallest board that requires a search."""
    snakes = [
        {"id": name, "health": 90, "body": [{"x": x, "y": y} for y in (3, 2, 1)]}
        for name, x in (("a", 2), ("b", 5))
    ]
    body = {
        "game": {"id": f"attack-{number}", "timeout": timeout},
        "board": {"width": 11, "height": 11, "snakes": snakes},
        "you": snakes[0],
    }
    return post(json.dumps(body, separators=(",", ":")).encode())


@pytest.mark.parametrize("snake", ["minimax", pytest.param("default", marks=pytest.mark.slow)])
def test_a_thousand_requests_whose_clients_leave_keep_nobody_waiting(
    loud: Callable[..., str], snake: str
) -> None:
    address = loud(*([] if snake == "default" else ["--snake", snake]))
    numbers, sent, health = itertools.count(), [], []

    def leave_at_once(over: threading.Event) -> None:
        for number in numbers:
            if number >= 1000:
                return
            with connect(address) as connection:
                connection.sendall(short_request(number, TIMEOUTS[number % len(TIMEOUTS)]))
            sent.append(number)

    with Pace() as pace, meanwhile(leave_at_once, 4):
        during = honest_game(address, 10)
        health += [healthy(address) for _ in range(5)]
    assert len(sent) == 1000
    assert max(during.seconds) < pace.patience
    assert max(health) < pace.patience
    # Searches for clients that have disconnected soon stop, so that strategies choose moves again.
    while not any(honest_game(address, 5, new=True).thought):
        pass


def test_a_thousand_requests_whose_clients_wait_keep_nobody_waiting(
    loud: Callable[..., str],
) -> None:
    """All clients ask for searches of ten seconds."""
    address = loud("--snake", "minimax")
    with contextlib.ExitStack() as patient, Pace() as pace, Pace(NICE_INCREMENT) as thinkers:
        for number in range(300):
            connection = patient.enter_context(connect(address))
            connection.sendall(short_request(10_000 + number, 10**9))
        seen = honest_game(address, 15)
        health = [healthy(address) for _ in range(5)]
    assert max(seen.seconds) < pace.patience
    assert max(health) < pace.patience
    assert sum(seen.thought) * thinkers.slowness >= 3, "it has a share of the time"


def outsized_request() -> bytes:
    """Build a request with a 100x100 board and sixty snakes: 200 kB."""
    cells = [{"x": x, "y": y} for y in range(0, 100, 2) for x in range(100)]
    snakes = [{"id": f"s{i}", "health": 90, "body": cells[60 * i : 60 * i + 60]} for i in range(60)]
    board = {"width": 100, "height": 100, "snakes": snakes, "food": cells[4000:4500]}
    body = {"game": {"id": "outsized", "timeout": 500}, "board": board, "you": snakes[0]}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    "snake", [pytest.param("minimax", marks=pytest.mark.slow), "default", "cautious"]
)
def test_outsized_boards_get_no_more_than_their_share(loud: Callable[..., str], snake: str) -> None:
    address = loud(*([] if snake == "default" else ["--snake", snake]))
    sized = outsized_request()

    def body_of(number: int) -> bytes:
        return sized.replace(b'"id": "outsized"', b'"id": "outsized-%d"' % number)

    strangers = meanwhile(asking(address, body_of), 8)
    with Pace() as pace, Pace(NICE_INCREMENT) as thinkers, strangers:
        seen = honest_game(address, 20)
    alone = honest_game(address, 10)
    assert max(seen.seconds) < pace.patience
    # The strategy chooses at least half as many moves as without load, adjusted for a slow machine.
    assert sum(seen.thought) * thinkers.slowness >= sum(alone.thought)


@pytest.mark.parametrize("snake", ["minimax", "cautious"])
def test_large_bodies_do_not_delay_games_on_large_boards(
    loud: Callable[..., str], snake: str
) -> None:
    """Both have bodies over 16 KiB, whose parsing waits in line; strangers send the largest."""
    address = loud("--snake", snake)

    def body_of(number: int) -> bytes:
        body = short_request(20_000 + number, 500).partition(b"\r\n\r\n")[2]
        return body + b" " * 200_000

    with Pace() as pace, meanwhile(asking(address, body_of), 16):
        seen = honest_game(address, 15, padding=1 << 14)
    assert max(seen.seconds) < pace.patience


def asking(address: str, body_of: Callable[[int], bytes]) -> Callable[[threading.Event], None]:
    """Return the work of clients that send the bodies of all numbers, one after the other."""
    numbers = itertools.count()

    def ask(over: threading.Event) -> None:
        with connect(address) as connection:
            while not over.is_set():
                connection.sendall(post(body_of(next(numbers))))
                assert answered(connection)["move"]

    return ask


def lose_no_move(address: str) -> None:
    with Pace() as pace:
        games = [
            honest_game(address, 6, split=split, new=new)
            for split, new in itertools.product((False, True), repeat=2)
        ]
        health = healthy(address)
    assert max(seconds for seen in games for seconds in seen.seconds) < pace.patience
    assert health < pace.patience


def test_clients_that_drip_lose_their_connections(cautious: str) -> None:
    """Three hundred clients send one byte per second, in the headers or in the body."""
    whole = short_request(1, 500)
    stack = contextlib.ExitStack()
    dripping = [stack.enter_context(connect(cautious)) for _ in range(300)]
    closed: list[float] = []
    began = time.monotonic()

    def drip(over: threading.Event) -> None:
        places = [20 if number % 2 else 200 for number in range(len(dripping))]
        for connection, place in zip(dripping, places, strict=True):
            connection.sendall(whole[:place])
        for count in itertools.count():
            if over.wait(0.5):
                return
            for connection, place in zip(dripping, places, strict=True):
                with contextlib.suppress(OSError):
                    connection.sendall(whole[place + count : place + count + 1])

    with stack, meanwhile(drip):
        lose_no_move(cautious)
        for connection in dripping:
            with contextlib.suppress(OSError):
                assert not connection.recv(1)
            closed.append(time.monotonic() - began)
    assert max(closed) < 15, "the server closes them, however long they would go on"


@pytest.mark.parametrize("served", [False, True])
def test_idle_connections_make_room(cautious: str, served: bool) -> None:
    """Open more connections than the server keeps, new or kept alive after a response."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(most, 4096)), most))
    with contextlib.ExitStack() as idle:
        for _ in range(2300):
            connection = idle.enter_context(connect(cautious))
            if served:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        lose_no_move(cautious)


def test_one_connection_cannot_hold_the_memory(cautious: str) -> None:
    """Send many requests without reading the responses, and bodies without an end."""
    with connect(cautious) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 5000)
        lose_no_move(cautious)
    with contextlib.ExitStack() as unfinished:
        connections = [unfinished.enter_context(connect(cautious)) for _ in range(200)]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(post(b" " * 250_000)[:-1])
        lose_no_move(cautious)
        text = fetch(f"{cautious}/metrics")
    memory = next(line for line in text.splitlines() if line.startswith("process_resident"))
    assert float(memory.split()[1]) < 250e6
