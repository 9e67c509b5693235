"""The load tests count what they ought to count."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from benchmarks.load import GAME_ID, Connection, Tally, play, played_games
from benchmarks.soak import FLAT, Course


class Scripted(Connection):
    """Answers from a list; an exception in it is raised."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(0)
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def post(self, path: str, body: bytes) -> Any:
        self.asked.append((path, json.loads(body)))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def played(answers: list[Any], turns: int, **options: Any) -> tuple[Scripted, Tally]:
    connection, tally = Scripted(answers), Tally()
    game = played_games(500, 1)[0][:turns]
    asyncio.run(play(connection, game, "mine", 0, tally, math.inf, **options))
    return connection, tally


def test_a_game_is_asked_from_start_to_end() -> None:
    connection, tally = played([{}, {"move": "up"}, {"move": "left"}, {}], 2)
    assert [path for path, _ in connection.asked] == ["/start", "/move", "/move", "/end"]
    assert [body["turn"] for _, body in connection.asked] == [0, 0, 1, 1]
    assert {body["game"]["id"] for _, body in connection.asked} == {"mine"} != {GAME_ID}
    assert (len(tally.seconds), tally.lost) == (2, 0)


def test_a_game_may_break_off() -> None:
    connection, _ = played([{}, {"move": "up"}], 1, ends=False)
    assert connection.asked[-1][0] == "/move"


@pytest.mark.parametrize("answer", [{"move": "UP"}, {}, [], ConnectionError("closed"), None])
def test_what_is_no_move_is_lost(answer: object) -> None:
    _, tally = played([{}, answer, {"move": "up"}, {}], 2)
    assert (len(tally.seconds), tally.lost) == (1, 1)


@pytest.mark.parametrize("bytes_a_move", [0, 10])
def test_ten_bytes_a_move_are_no_flat_memory(bytes_a_move: int) -> None:
    course = Course()
    for minute in range(30):
        course.seconds.append(60.0 * minute)
        noise = 40_000 * math.sin(minute)
        course.memory.append(74e6 + noise + 200 * 60 * minute * bytes_a_move)
    grown, seconds, memory = course.growth()
    assert seconds == 14 * 60
    assert (grown < FLAT * memory) is (bytes_a_move == 0)
