"""A policy's memory in the live snake: late, repeated and reordered requests, and restarts."""

import itertools
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.mdp import observations
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_gym.rules import Game, Settings
from battlesnake_server.policy_memory import PolicyMemory

Floats = NDArray[np.float32]


class Health:
    """An observation of the own health."""

    depends_on_earlier_turns = False

    def encode(
        self, board: Board, snake_id: str, out: NDArray[np.uint8], *, view_radius: int | None
    ) -> NDArray[np.uint8]:
        out[:] = board.you.health
        return out


class Policy:
    """A policy whose scores depend on every earlier observation and their order."""

    state_size = 1

    def __init__(self) -> None:
        self.calls = 0
        self.observation = Health()

    def observation_shape(self, width: int, height: int) -> tuple[int, int, int]:
        return 1, 1, 1

    def step(
        self, batch: NDArray[np.uint8], states: Floats, seconds: float | None = None
    ) -> tuple[Floats, Floats]:
        self.calls += 1
        after = 3 * states + batch.reshape(len(batch), -1)[:, :1] + 1
        return np.repeat(after, 4, axis=1), after

    def action_scores(self, batch: NDArray[np.uint8], seconds: float | None = None) -> Floats:
        return self.step(batch, np.zeros((len(batch), 1), np.float32), seconds)[0]


def ask(memory: PolicyMemory, turn: int, seen: int | None = None) -> float:
    board = Board.new(7, 7, 2, game=Game(id="night", seed=1))
    board.turn, board.you_id = turn, board.snakes[0].id
    board.snakes[0].health = turn if seen is None else seen
    return float(memory.action_scores(board, None)[0])


def memory_of(policy: Policy) -> PolicyMemory:
    return PolicyMemory(cast(OnnxPolicy, policy))


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


class Stacked:
    """A policy without a recurrent state, whose scores are the sum of the whole observation."""

    state_size = 0

    def __init__(self, observation: observations.Observation) -> None:
        self.observation = observation
        self.observation_shape = observation.shape

    def step(
        self, batch: NDArray[np.uint8], states: Floats, seconds: float | None = None
    ) -> tuple[Floats, Floats]:
        weights = np.arange(1, 1 + batch[0].size, dtype=np.float64)
        sums = (batch.reshape(len(batch), -1) @ weights)[:, np.newaxis]
        return np.repeat(sums, 4, axis=1), states


@pytest.mark.parametrize(
    "observation",
    [observations.Observation("planes", 3), observations.get("memory")],
    ids=["stack", "memory"],
)
def test_observations_of_earlier_turns_need_no_order(
    observation: observations.Observation,
) -> None:
    board = Board.new(11, 11, 2, game=Game(seed=1, settings=Settings(view_radius=2)))
    players = {snake.id: snakes.make("cautious", 1) for snake in board.snakes}
    board.you_id = board.snakes[0].id
    boards = [board.copy(), *(board.copy() for _ in snakes.play(board, players, max_turns=20))]

    def played(order: list[int]) -> dict[int, float]:
        memory = PolicyMemory(cast(OnnxPolicy, Stacked(observation)))
        return {turn: float(memory.action_scores(boards[turn], None)[0]) for turn in order}

    expected = played(list(range(20)))
    stack = np.zeros(observation.shape(11, 11), np.uint8)
    for turn in range(20):
        observation.encode(boards[turn], boards[turn].you.id, stack, view_radius=2)
        weights = np.arange(1, 1 + stack.size, dtype=np.float64)
        assert expected[turn] == float(stack.reshape(-1) @ weights)
    for middle in itertools.permutations(range(10, 13)):
        order = [*range(10), *middle, 11, 12, 12, *range(13, 20)]
        found = played(order)
        assert [found[turn] for turn in range(12, 20)] == [expected[turn] for turn in range(12, 20)]
