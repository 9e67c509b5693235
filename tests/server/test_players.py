"""Single requests to snakes that behave well and badly, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.snakes import Decision
from battlesnake_server.address_policy import LOOPBACK, AddressPolicy
from battlesnake_server.arena.players import (
    MAX_CUSTOMIZATION_CHARS,
    MAX_SHOUT_CHARS,
    HttpPlayer,
    LocalPlayer,
    MoveResponse,
    open_client,
    parse_customization,
    parse_move,
)
from battlesnake_server.live.fallback import TIMEOUT_NOTE
from battlesnake_server.live.time_budget import time_budget
from tests.processes import free_port
from tests.server import misbehaving_snakes

TIMEOUT = 0.3
"""Seconds that a snake gets that shall be too late."""

PATIENT = 60.0
"""Seconds that one gets that shall not be, however busy the machine is."""

NEVER = misbehaving_snakes.NEVER / 2
"""Seconds in which nobody has waited for a snake that does not answer."""

HERE = AddressPolicy(frozenset({LOOPBACK}))
BODY = {"game": {"id": "ä"}, "turn": 0}


def ask(
    url: str, times: int = 1, timeout: float = PATIENT, *, redirects: bool = False
) -> list[MoveResponse]:
    async def talk() -> list[MoveResponse]:
        async with open_client(HERE) as client:
            player = HttpPlayer(url, timeout, client, redirects=redirects)
            return [await player.move(BODY) for _ in range(times)]

    return asyncio.run(talk())


def ask_once(behaviour: misbehaving_snakes.Behaviour, timeout: float = PATIENT) -> MoveResponse:
    with misbehaving_snakes.snake(behaviour) as url:
        return ask(url, timeout=timeout)[0]


def test_a_good_answer_counts() -> None:
    answer = ask_once(misbehaving_snakes.says(misbehaving_snakes.http(misbehaving_snakes.GOOD)))
    assert (answer.move, answer.shout, answer.problem) == ("left", "hello", "")
    assert 0 < answer.milliseconds < 1000 * PATIENT


def bad_status(status: str) -> misbehaving_snakes.Behaviour:
    return misbehaving_snakes.says(misbehaving_snakes.http(misbehaving_snakes.GOOD, status))


def bad_body(body: bytes) -> misbehaving_snakes.Behaviour:
    return misbehaving_snakes.says(misbehaving_snakes.http(body))


ZOO = {
    "hangs": (misbehaving_snakes.hangs, "timeout"),
    "drips its head": (misbehaving_snakes.drips, "timeout"),
    "drips its body": (misbehaving_snakes.drips_body, "timeout"),
    "closes": (misbehaving_snakes.closes, "connection"),
    "floods": (misbehaving_snakes.floods, "connection"),
    "floods its head": (misbehaving_snakes.floods_head, "connection"),
    "circles": (misbehaving_snakes.circles, "redirect"),
    "redirects nowhere": (
        misbehaving_snakes.says(misbehaving_snakes.http(b"", "302 Found", "Location: ftp://x/")),
        "redirect",
    ),
    "talks nonsense": (misbehaving_snakes.says(b"hello\r\n\r\n"), "connection"),
    "binary": (misbehaving_snakes.says(bytes(range(256))), "connection"),
    "short body": (
        misbehaving_snakes.says(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"),
        "timeout",
    ),
    "500": (bad_status("500 Internal Server Error"), "status"),
    "201": (bad_status("201 Created"), "status"),
    "204": (misbehaving_snakes.says(b"HTTP/1.1 204 No Content\r\n\r\n"), "status"),
    "empty": (bad_body(b""), "answer"),
    "no JSON": (bad_body(b"left"), "answer"),
    "no move": (bad_body(b"{}"), "answer"),
    "wrong case": (bad_body(b'{"move": "LEFT"}'), "answer"),
    "wrong word": (bad_body(b'{"move": "north"}'), "answer"),
    "wrong type": (bad_body(b'{"move": ["left"]}'), "answer"),
    "wrong shout": (bad_body(b'{"move": "left", "shout": 1}'), "answer"),
    "list": (bad_body(b'["left"]'), "answer"),
    "null": (bad_body(b"null"), "answer"),
    "null for a move": (bad_body(b'{"move": null}'), "answer"),
    "not UTF-8": (bad_body(b"\xff"), "answer"),
    "trailing text": (bad_body(b'{"move": "up"} x'), "answer"),
    "long number": (bad_body(b"9" * 5000), "answer"),
    "deep": (bad_body(b"[" * 60_000), "answer"),
    "zip bomb": (
        misbehaving_snakes.says(
            misbehaving_snakes.http(gzip.compress(b" " * 10**7), "200 OK", "Content-Encoding: gzip")
        ),
        "answer",
    ),
}


@pytest.mark.parametrize("name", ZOO)
def test_a_bad_answer_is_none_and_costs_no_more_than_the_timeout(name: str) -> None:
    behaviour, problem = ZOO[name]
    began = time.perf_counter()
    answer = ask_once(behaviour, TIMEOUT if problem == "timeout" else PATIENT)
    assert time.perf_counter() - began < NEVER
    assert answer.move is None
    assert answer.problem == problem
    assert answer.milliseconds < 1000 * NEVER


def test_nobody_listens() -> None:
    assert ask(f"http://127.0.0.1:{free_port()}")[0].problem == "connection"
    assert ask("http://host.invalid")[0].problem in ("connection", "timeout")


def test_connections_are_kept_and_paths_appended() -> None:
    recorder = misbehaving_snakes.Recorder()
    with misbehaving_snakes.snake(recorder) as url:
        answers = ask(f"{url}/base/path/?token=a%20b", times=5)
    assert [answer.move for answer in answers] == ["left"] * 5
    assert {request[0] for request in recorder.requests} == {
        "POST /base/path/move?token=a%20b HTTP/1.1"
    }
    assert len(recorder.connections) == 1


def test_answers_are_not_held_back_by_the_network() -> None:
    with misbehaving_snakes.snake(misbehaving_snakes.Recorder()) as url:
        # One suffices: with Nagle's algorithm all would take 40 ms.
        assert any(answer.milliseconds < 20 for _ in range(50) for answer in ask(url, times=20))


def test_a_redirect_on_the_same_host_is_followed_where_that_is_allowed() -> None:
    seen: list[bytes] = []

    def moved(connection: Any, head: bytes, body: bytes) -> bool:
        seen.append(head.split(b"\r\n")[0])
        there = b"/there" in seen[-1]
        connection.sendall(
            misbehaving_snakes.http(misbehaving_snakes.GOOD)
            if there
            else misbehaving_snakes.http(b"", "302 Found", "Location: /there")
        )
        return True

    with misbehaving_snakes.snake(moved) as url:
        assert ask(url)[0].problem == "redirect"
        assert seen == [b"POST /move HTTP/1.1"]
        seen.clear()
        assert ask(url, redirects=True)[0].move == "left"
    assert seen == [b"POST /move HTTP/1.1", b"GET /there HTTP/1.1"]
    with misbehaving_snakes.snake(misbehaving_snakes.circles) as url:
        assert ask(url, redirects=True)[0].problem == "redirect"


def test_start_end_and_introduce_never_raise() -> None:
    async def talk(url: str) -> dict[str, str]:
        async with open_client(HERE) as client:
            player = HttpPlayer(url, 0.2, client)
            await player.start(BODY)
            await player.end(BODY)
            return await player.fetch_customization()

    for behaviour, _ in ZOO.values():
        with misbehaving_snakes.snake(behaviour) as url:
            assert asyncio.run(talk(url)) == {}


def test_the_looks_are_read_whatever_the_status() -> None:
    looks = b'{"color": "#fff", "head": 3, "tail": "bolt", "author": "x"}'

    async def introduce(url: str) -> dict[str, str]:
        async with open_client(HERE) as client:
            return await HttpPlayer(url, PATIENT, client).fetch_customization()

    with misbehaving_snakes.snake(
        misbehaving_snakes.says(misbehaving_snakes.http(looks, "404 Not Found"))
    ) as url:
        assert asyncio.run(introduce(url)) == {"color": "#fff", "tail": "bolt"}


def test_a_null_shout_is_no_shout() -> None:
    assert parse_move(b'{"move": "down", "shout": null, "taunt": 1}') == ("down", "")


def test_what_a_snake_says_is_shown_as_a_bounded_text() -> None:
    long = "x" * 1000
    assert parse_customization(
        json.dumps({"color": long, "head": long, "tail": "a\x00\u202eb"}).encode()
    ) == {
        "head": "x" * MAX_CUSTOMIZATION_CHARS,
        "tail": "ab",
    }
    for color in ("red", "#12345", "url(//x)", "#fff;}"):
        assert parse_customization(json.dumps({"color": color}).encode()) == {}, color
    shout = json.dumps({"move": "up", "shout": "\ud800<b>\n" + long}).encode()
    assert parse_move(shout) == ("up", "<b>" + "x" * (MAX_SHOUT_CHARS - 3))


def local(strategy: Any, timeout: float = PATIENT, turns: int = 1) -> MoveResponse:
    """The answer of the last turn, on a board where "up" leads out."""
    board = Board.from_text(". A .\n. ^ .\n. ^ .\nA: you")
    board.game = replace(board.game, timeout=int(1000 * timeout))
    player = LocalPlayer(strategy, timeout)

    async def talk() -> MoveResponse:
        for _ in range(turns):
            answer = await player.move(board.to_api())
        return answer

    return asyncio.run(talk())


def test_strategies_in_process_are_given_what_a_server_would_give_them() -> None:
    given: list[Any] = []

    def good(board: Board, seconds: float | None = None) -> Decision:
        given.append((board.you_id, board.game.seed))
        assert seconds is not None
        assert 0 < seconds <= time_budget(PATIENT, None)
        return Decision("down", shout="hi")

    answer = local(good)
    assert (answer.move, answer.shout, answer.problem) == ("down", "hi", "")
    assert answer.decision == Decision("down", (), {}, "hi")
    assert given == [("a", 0)], "the seed, and so the food to come, stays hidden"


def test_where_a_strategy_in_process_fails_the_fallback_answers_and_it_is_told() -> None:
    released = threading.Event()

    def late(board: Board, seconds: float | None = None) -> Decision:
        released.wait(PATIENT)
        return Decision("up")

    try:
        answer = local(late, 0.05, turns=2)
    finally:
        released.set()
    assert answer.move in ("left", "right"), "it does not repeat a move into the wall"
    assert answer.problem == "timeout"
    assert answer.decision is not None
    assert answer.decision.reasons[0].note == TIMEOUT_NOTE
    for broken in (lambda board, seconds=None: 1 / 0, lambda board, seconds=None: Decision("UP")):
        answer = local(broken)
        assert answer.move in ("left", "right")
        assert answer.problem == "answer"


def test_one_overrun_costs_one_move() -> None:
    released = threading.Event()

    def late_once(board: Board, seconds: float | None = None) -> Decision:
        if not released.is_set():
            released.wait(20)
            time.sleep(0.1)  # it takes a while to come back, longer than a turn of fallbacks
        return Decision("left")

    board = Board.from_text(". . .\n. A .\n. ^ .\nA: you")
    board.game = replace(board.game, timeout=1000)
    player = LocalPlayer(late_once, 1.0)
    answers = []
    for _ in range(3):
        answers.append(asyncio.run(player.move(board.to_api())))
        released.set()
    assert [answer.problem for answer in answers] == ["timeout", "", ""]


def test_a_machine_too_busy_to_give_up_in_time_costs_no_snake_its_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def standstill(*arguments: Any) -> Decision:
        time.sleep(0.02)
        return Decision("up")

    monkeypatch.setattr("battlesnake_server.live.move_runner.Thinker.decide", standstill)
    answer = local(lambda board, seconds=None: Decision("up"), 0.01)
    assert answer.move in ("left", "right")
    assert answer.problem == "timeout"
