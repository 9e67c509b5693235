"""The recurrent state of the live snake: late, repeated and reordered requests, and restarts."""

from __future__ import annotations

import itertools
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_gym.rules import Game
from battlesnake_server.recurrent_memory import RecurrentMemory

Floats = NDArray[np.float32]


class Policy:
    """A policy whose scores depend on every earlier observation and their order."""

    state_size = 1

    def __init__(self) -> None:
        self.calls = 0

    def step(
        self, batch: NDArray[np.uint8], states: Floats, seconds: float | None = None
    ) -> tuple[Floats, Floats]:
        self.calls += 1
        after = 3 * states + batch.reshape(len(batch), -1)[:, :1] + 1
        return np.repeat(after, 4, axis=1), after

    def action_scores(self, batch: NDArray[np.uint8], seconds: float | None = None) -> Floats:
        return self.step(batch, np.zeros((len(batch), 1), np.float32), seconds)[0]


def ask(memory: RecurrentMemory, turn: int, seen: int | None = None) -> float:
    board = Board.new(7, 7, 2, game=Game(id="night"))
    board.turn = turn
    frames = np.full((1, 1, 1), turn if seen is None else seen, np.uint8)
    return float(memory.action_scores(board, frames, None)[0])


def memory_of(policy: Policy) -> RecurrentMemory:
    return RecurrentMemory(cast(OnnxPolicy, policy))


def in_order(turns: range) -> list[float]:
    memory = memory_of(Policy())
    return [ask(memory, turn) for turn in turns]


def test_a_request_in_order_needs_one_call() -> None:
    policy = Policy()
    memory = memory_of(policy)
    expected, state = [], 0
    for turn in range(20):
        state = 3 * state + turn + 1
        expected.append(float(np.float32(state)))
    assert [ask(memory, turn) for turn in range(20)] == pytest.approx(expected)
    assert policy.calls == 20


def test_repeated_requests_get_the_same_response() -> None:
    memory, expected = memory_of(Policy()), in_order(range(20))
    for turn in range(20):
        assert [ask(memory, turn) for _ in range(3)] == [expected[turn]] * 3
        for earlier in range(max(0, turn - 5), turn):
            assert ask(memory, earlier) == expected[earlier]


@pytest.mark.parametrize("order", list(itertools.permutations(range(10, 14))))
def test_the_order_of_requests_has_no_effect_later(order: tuple[int, ...]) -> None:
    memory, expected = memory_of(Policy()), in_order(range(20))
    for turn in (*range(10), *order):
        ask(memory, turn)
    assert [ask(memory, turn) for turn in range(14, 20)] == expected[14:]


def test_a_request_older_than_the_memory_changes_nothing() -> None:
    memory, expected = memory_of(Policy()), in_order(range(20))
    for turn in range(12):
        ask(memory, turn)
    assert ask(memory, 2) == 3.0
    assert ask(memory, 6, seen=9) == 10.0
    assert [ask(memory, turn) for turn in range(12, 20)] == expected[12:]


def test_another_position_of_a_turn_replaces_the_first() -> None:
    memory, expected = memory_of(Policy()), in_order(range(5))
    ask(memory, 0)
    ask(memory, 1, seen=7)
    ask(memory, 2)
    assert ask(memory, 1) == expected[1]
    assert [ask(memory, turn) for turn in (2, 3)] == expected[2:4]


def test_a_restart_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = memory_of(Policy())
    assert ask(memory, 30) == 31.0
    ask(memory, 31)
    assert caplog.text.count("the first request has turn 30") == 1
    in_order(range(3))
    assert caplog.text.count("the first request") == 1
