"""Single requests to well-behaved and misbehaving snakes over real sockets."""

import asyncio
import gzip
import json
import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.rating.process_pool import InterruptedBySignal
from battlesnake_server.address_policy import LOOPBACK, AddressPolicy
from battlesnake_server.arena.guarded_strategy import guard
from battlesnake_server.arena.players import (
    MAX_CUSTOMIZATION_CHARS,
    MAX_SHOUT_CHARS,
    HttpPlayer,
    LocalPlayer,
    MoveResponse,
    _parse_customization,
    _parse_move,
)
from battlesnake_server.live.fallback import FALLBACK_RULE, TIMEOUT_NOTE
from battlesnake_server.live.time_budget import RoundTripEstimate
from tests.processes import free_port
from tests.server import misbehaving_snakes
from tests.server.misbehaving_snakes import GOOD, answers, http, says, snake

TIMEOUT = 0.3
"""Timeout of a snake that should be too late, in seconds."""

PATIENT = 60.0
"""Timeout of a snake that should never be too late, even on a busy machine, in seconds."""

NEVER = misbehaving_snakes.NEVER / 2
"""Upper bound of the wait for a snake that never responds, in seconds."""

HERE = AddressPolicy(frozenset({LOOPBACK}))
BODY = {"game": {"id": "ä"}, "turn": 0}


def ask(
    url: str, times: int = 1, timeout: float = PATIENT, *, redirects: bool = False
) -> list[MoveResponse]:
    async def talk() -> list[MoveResponse]:
        async with HttpPlayer(url, timeout, replace(HERE, redirects=redirects)) as player:
            return [await player.move(BODY) for _ in range(times)]

    return asyncio.run(talk())


def ask_once(behavior: misbehaving_snakes.Behavior, timeout: float = PATIENT) -> MoveResponse:
    with snake(behavior) as url:
        return ask(url, timeout=timeout)[0]


def test_a_valid_response_counts() -> None:
    response = ask_once(answers(GOOD))
    assert (response.move, response.shout, response.problem) == ("left", "hello", "")
    assert 0 < response.milliseconds < 1000 * PATIENT


MISBEHAVIORS = {
    "hangs": (misbehaving_snakes.hangs, "timeout"),
    "drips its head": (misbehaving_snakes.drips, "timeout"),
    "drips its body": (misbehaving_snakes.drips_body, "timeout"),
    "closes": (misbehaving_snakes.closes, "connection"),
    "floods": (misbehaving_snakes.floods, "connection"),
    "floods its head": (misbehaving_snakes.floods_head, "connection"),
    "circles": (misbehaving_snakes.circles, "redirect"),
    "redirects nowhere": (answers(b"", "302 Found", "Location: ftp://x/"), "redirect"),
    "talks nonsense": (says(b"hello\r\n\r\n"), "connection"),
    "binary": (says(bytes(range(256))), "connection"),
    "short body": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"), "timeout"),
    "500": (answers(GOOD, "500 Internal Server Error"), "status"),
    "201": (answers(GOOD, "201 Created"), "status"),
    "204": (says(b"HTTP/1.1 204 No Content\r\n\r\n"), "status"),
    "empty": (answers(b""), "answer"),
    "no JSON": (answers(b"left"), "answer"),
    "no move": (answers(b"{}"), "answer"),
    "wrong case": (answers(b'{"move": "LEFT"}'), "answer"),
    "wrong word": (answers(b'{"move": "north"}'), "answer"),
    "wrong type": (answers(b'{"move": ["left"]}'), "answer"),
    "wrong shout": (answers(b'{"move": "left", "shout": 1}'), "answer"),
    "list": (answers(b'["left"]'), "answer"),
    "null": (answers(b"null"), "answer"),
    "null for a move": (answers(b'{"move": null}'), "answer"),
    "not UTF-8": (answers(b"\xff"), "answer"),
    "trailing text": (answers(b'{"move": "up"} x'), "answer"),
    "long number": (answers(b"9" * 5000), "answer"),
    "deep": (answers(b"[" * 60_000), "answer"),
    "zip bomb": (
        answers(gzip.compress(b" " * 10**7), "200 OK", "Content-Encoding: gzip"),
        "answer",
    ),
}


@pytest.mark.parametrize("name", MISBEHAVIORS)
def test_an_invalid_response_has_no_move_and_takes_at_most_the_timeout(name: str) -> None:
    behavior, problem = MISBEHAVIORS[name]
    began = time.perf_counter()
    response = ask_once(behavior, TIMEOUT if problem == "timeout" else PATIENT)
    assert time.perf_counter() - began < NEVER
    assert response.move is None
    assert response.problem == problem
    assert response.milliseconds < 1000 * NEVER


def test_a_closed_port_is_a_connection_problem() -> None:
    assert ask(f"http://127.0.0.1:{free_port()}")[0].problem == "connection"
    assert ask("http://host.invalid")[0].problem in ("connection", "timeout")


def test_a_server_that_closes_idle_connections_loses_no_move() -> None:
    requests: list[int] = []

    def closes_idle(connection: Any, head: bytes, body: bytes) -> bool:
        requests.append(id(connection))
        if requests.count(id(connection)) > 1 and len(requests) % 2:
            return False  # closed in the moment in which the request was sent
        connection.sendall(http(GOOD))
        return True

    with snake(closes_idle) as url:
        assert [response.problem for response in ask(url, times=9)] == [""] * 9
    assert len(requests) > 9


def test_a_request_is_sent_again_only_if_nothing_was_received() -> None:
    requests: list[bytes] = []

    def answers_once(connection: Any, head: bytes, body: bytes) -> bool:
        requests.append(head)
        if len(requests) == 1:
            connection.sendall(http(GOOD))
        elif len(requests) == 2:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
        return len(requests) == 1

    with snake(answers_once) as url:
        assert [response.problem for response in ask(url, times=2)] == ["", "connection"]
        assert len(requests) == 2, "part of the response was received"
        assert ask(url)[0].problem == "connection"
        assert len(requests) == 3, "the connection was fresh"


def test_connections_are_kept_and_paths_appended() -> None:
    recorder = misbehaving_snakes.Recorder()
    with snake(recorder) as url:
        responses = ask(f"{url}/base/path/?token=a%20b", times=5)
    assert [response.move for response in responses] == ["left"] * 5
    assert {request[0] for request in recorder.requests} == {
        "POST /base/path/move?token=a%20b HTTP/1.1"
    }
    assert len(recorder.connections) == 1


def test_responses_are_not_delayed_by_nagles_algorithm() -> None:
    with snake(misbehaving_snakes.Recorder()) as url:
        # One fast response suffices: with Nagle's algorithm every one would take 40 ms.
        assert any(response.milliseconds < 20 for _ in range(50) for response in ask(url, times=20))


def test_a_redirect_on_the_same_host_is_followed_if_allowed() -> None:
    seen: list[bytes] = []

    def moved(connection: Any, head: bytes, body: bytes) -> bool:
        seen.append(head.split(b"\r\n")[0])
        there = b"/there" in seen[-1]
        connection.sendall(http(GOOD) if there else http(b"", "302 Found", "Location: /there"))
        return True

    with snake(moved) as url:
        assert ask(url)[0].problem == "redirect"
        assert seen == [b"POST /move HTTP/1.1"]
        seen.clear()
        assert ask(url, redirects=True)[0].move == "left"
    assert seen == [b"POST /move HTTP/1.1", b"GET /there HTTP/1.1"]
    with snake(misbehaving_snakes.circles) as url:
        assert ask(url, redirects=True)[0].problem == "redirect"


def test_start_end_and_customization_never_raise() -> None:
    async def talk(url: str) -> dict[str, str]:
        async with HttpPlayer(url, 0.2, HERE) as player:
            await player.start(BODY)
            await player.end(BODY)
            return await player.fetch_customization()

    for behavior, _ in MISBEHAVIORS.values():
        with snake(behavior) as url:
            assert asyncio.run(talk(url)) == {}


def test_the_customization_is_read_whatever_the_status() -> None:
    customization = b'{"color": "#fff", "head": 3, "tail": "bolt", "author": "x"}'

    async def fetch(url: str) -> dict[str, str]:
        async with HttpPlayer(url, PATIENT, HERE) as player:
            return await player.fetch_customization()

    with snake(answers(customization, "404 Not Found")) as url:
        assert asyncio.run(fetch(url)) == {"color": "#fff", "tail": "bolt"}


def test_a_null_shout_is_no_shout() -> None:
    assert _parse_move(b'{"move": "down", "shout": null, "taunt": 1}') == ("down", "")


def test_texts_of_a_snake_are_bounded() -> None:
    long = "x" * 1000
    sent = json.dumps({"color": long, "head": long, "tail": "a\x00\u202eb"}).encode()
    assert _parse_customization(sent) == {"head": "x" * MAX_CUSTOMIZATION_CHARS, "tail": "ab"}
    for color in ("red", "#12345", "url(//x)", "#fff;}"):
        assert _parse_customization(json.dumps({"color": color}).encode()) == {}, color
    shout = json.dumps({"move": "up", "shout": "\ud800<b>\n" + long}).encode()
    assert _parse_move(shout) == ("up", "<b>" + "x" * (MAX_SHOUT_CHARS - 3))


def local(strategy: Any, timeout: float = PATIENT, turns: int = 1) -> MoveResponse:
    """Return the response on the last turn; "up" leaves the board."""
    board = Board.from_text(". A .\n. ^ .\n. ^ .\nA: you")
    board.game = replace(board.game, timeout=int(1000 * timeout))
    player = LocalPlayer(strategy, timeout)

    async def talk() -> MoveResponse:
        for _ in range(turns):
            response = await player.move(board.to_api())
        return response

    return asyncio.run(talk())


def test_local_strategies_get_the_time_budget_of_a_server() -> None:
    given: list[Any] = []

    def good(board: Board, seconds: float | None = None) -> Decision:
        given.append((board.you_id, board.game.seed))
        assert seconds is not None
        assert 0 < seconds <= RoundTripEstimate().time_budget_s(PATIENT)
        return Decision("down", shout="hi")

    response = local(good)
    assert (response.move, response.shout, response.problem) == ("down", "hi", "")
    assert response.decision == Decision("down", (), {}, "hi")
    assert given == [("a", 0)], "the seed, which determines future food, stays hidden"


def test_a_failing_local_strategy_plays_the_fallback_move_and_the_problem_is_recorded() -> None:
    released = threading.Event()

    def late(board: Board, seconds: float | None = None) -> Decision:
        released.wait(PATIENT)
        return Decision("up")

    try:
        response = local(late, 0.05, turns=2)
    finally:
        released.set()
    assert response.move in ("left", "right"), "the previous move would hit the wall"
    assert response.problem == "timeout"
    assert response.decision is not None
    assert response.decision.reasons[0].note == TIMEOUT_NOTE
    for broken in (lambda board, seconds=None: 1 / 0, lambda board, seconds=None: Decision("UP")):
        response = local(broken)
        assert response.move in ("left", "right")
        assert response.problem == "exception"
        assert "division by zero" in response.error or "got 'UP'" in response.error


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
def test_whatever_a_strategy_raises_costs_one_move(kind: type[BaseException]) -> None:
    def leaves(board: Board, seconds: float | None = None) -> Decision:
        raise kind("bye")

    response = local(leaves, turns=2)
    assert response.move in ("left", "right")
    assert response.problem == "exception"
    assert re.fullmatch(rf"\S*test_players.py, line \d+: {kind.__name__}: bye", response.error)


def test_an_interrupt_by_a_signal_ends_the_game() -> None:
    def interrupted(board: Board, seconds: float | None = None) -> Decision:
        raise InterruptedBySignal

    board = Board.from_text(". A .\n. ^ .\nA: you")
    with pytest.raises(InterruptedBySignal):
        guard(interrupted)(board)


def test_a_rule_of_the_name_of_the_fallback_rule_is_no_problem() -> None:
    decision = Decision("left", (Reason(FALLBACK_RULE, vetoed=("right",)),))
    assert local(lambda board, seconds=None: decision).problem == ""


@pytest.mark.parametrize("answer", ["left", Decision("left")])
def test_a_strategy_may_return_the_name_of_its_move(answer: Any) -> None:
    assert local(lambda board, seconds=None: answer).move == "left"


def test_one_overrun_costs_one_move() -> None:
    released = threading.Event()

    def late_once(board: Board, seconds: float | None = None) -> Decision:
        if not released.is_set():
            released.wait(20)
            time.sleep(0.1)  # longer than a turn of fallback moves
        return Decision("left")

    board = Board.from_text(". . .\n. A .\n. ^ .\nA: you")
    board.game = replace(board.game, timeout=1000)
    player = LocalPlayer(late_once, 1.0)
    responses = []
    for _ in range(3):
        responses.append(asyncio.run(player.move(board.to_api())))
        released.set()
    assert [response.problem for response in responses] == ["timeout", "", ""]


def test_a_late_fallback_on_a_busy_machine_is_replaced_by_a_safe_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def standstill(*arguments: Any) -> Decision:
        time.sleep(0.02)
        return Decision("up")

    monkeypatch.setattr("battlesnake_server.live.move_runner.MoveRunner.decide", standstill)
    response = local(lambda board, seconds=None: Decision("up"), 0.01)
    assert response.move in ("left", "right")
    assert response.problem == "timeout"
