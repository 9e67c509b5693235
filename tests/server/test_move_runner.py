from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import Decision, Strategy
from battlesnake_heuristics.rule_based import preferences
from battlesnake_heuristics.rule_based.conditions import hungry
from battlesnake_heuristics.rule_based.filters import SAFE
from battlesnake_heuristics.rule_based.pipeline import Filter, Pipeline, Preference, When
from battlesnake_heuristics.rule_based.view import View
from battlesnake_heuristics.search.search import SHOULD_STOP, Search
from battlesnake_server.http.thread_pool import NICE_INCREMENT
from battlesnake_server.live import move_runner as module
from battlesnake_server.live import search_slots
from battlesnake_server.live.fallback import TIMEOUT_NOTE
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.move_runner import NUM_CORES, MoveRunner
from battlesnake_server.live.search_slots import SearchSlots
from battlesnake_server.live.sessions import Session, Sessions
from battlesnake_server.strategy_loader import (
    DEFAULT_POLICY_PATH,
    is_instant,
    strategy_factory,
)
from tests.processes import until

TIMEOUT = 60.0
"""Seconds per move; sufficient however busy the machine is."""

SHORT = 0.2
"""Seconds per move; not sufficient for any strategy."""


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: 0)


@pytest.fixture
def position() -> Board:
    board = Board.new(11, 11, 2, game=Game(seed=3, timeout=round(TIMEOUT * 1000)))
    board.you_id = "snake_0"
    return board


@pytest.fixture
def hurried(position: Board) -> Board:
    """Return the same position in a game with a short timeout."""
    board = position.copy()
    board.game = replace(board.game, timeout=round(SHORT * 1000))
    return board


def decide(runner: MoveRunner, session: Session, board: Board) -> tuple[Decision, float]:
    arrived = time.perf_counter()
    decision = runner.decide(session, board, arrived)
    return decision, time.perf_counter() - arrived


def count(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


class Hanging:
    """A strategy that moves left after the event ``let_go``."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        self.begun.set()
        self.let_go.wait(TIMEOUT)
        return Decision("left")


def move_left(board: Board, seconds: float | None = None) -> Decision:
    return Decision("left")


def assert_falls_back(runner: MoveRunner, session: Session, board: Board) -> None:
    """Check that the snake plays the fallback move long before a slow strategy would end."""
    decision, seconds = decide(runner, session, board)
    assert decision.reasons[0].note == TIMEOUT_NOTE
    assert decision.move in board.safe_moves()
    assert seconds < 0.5 * TIMEOUT


def test_a_hanging_strategy_costs_its_moves_and_nothing_else(
    metrics: Metrics, position: Board, hurried: Board
) -> None:
    runner, strategy = MoveRunner(metrics, num_slots=1), Hanging()
    stuck = Session(strategy)
    try:
        assert_falls_back(runner, stuck, hurried)
        # A hanging strategy is not called again, and occupies no second thread.
        assert_falls_back(runner, stuck, position)
        assert decide(runner, Session(move_left), position)[0].move == "left"
        assert count(metrics, "battlesnake_fallback_moves_on_timeout_total") == 2
        overrun = stuck.pending_move
        assert overrun is not None
    finally:
        strategy.let_go.set()
    futures.wait([overrun], TIMEOUT)
    assert stuck.pending_move is None, "nothing is kept of what is done"
    assert decide(runner, stuck, position)[0].move == "left", "it has recovered"


def at_once(
    runner: MoveRunner, strategy: Callable[..., Decision], board: Board, games: int
) -> list[tuple[Decision, float]]:
    with ThreadPoolExecutor(games) as engines:
        answers = [engines.submit(decide, runner, Session(strategy), board) for _ in range(games)]
        return [answer.result() for answer in answers]


def test_under_load_the_time_is_shared(
    metrics: Metrics, position: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thorough(board: Board, seconds: float | None = None) -> Decision:
        assert seconds is not None
        given.append(seconds)
        time.sleep(0.1)
        return Decision("left")

    given: list[float] = []
    runner = MoveRunner(metrics, num_slots=2)
    # The peak never decays, however slowly the requests arrive.
    monkeypatch.setattr(search_slots, "_LOAD_HALF_LIFE_S", math.inf)
    at_once(runner, thorough, position, 10)  # The first requests do not yet expect this load.
    given.clear()
    results = at_once(runner, thorough, position, 10)
    assert not any(decision.reasons for decision, _ in results), "everybody gets to think"
    assert max(given) <= 2 / 10 * TIMEOUT


def test_a_peak_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    slots = SearchSlots(3, 9, 9)
    with acquired(slots), acquired(slots), acquired(slots):
        pass
    now[0] = 1.0
    with acquired(slots):
        assert slots._peak == 1.5
    now[0] = 9.0
    with acquired(slots):
        assert slots._peak == 1


def acquired(slots: SearchSlots) -> contextlib.AbstractContextManager[float]:
    return slots.acquire(math.inf, 0.0, futures.Future())


def returns(move: object) -> Strategy:
    return lambda board, seconds=None: Decision(move)  # type: ignore[arg-type]


def raises(error: BaseException) -> Strategy:
    def strategy(board: Board, seconds: float | None = None) -> Decision:
        raise error

    return strategy


@pytest.mark.parametrize(
    ("strategy", "reason", "is_instant"),
    [
        *((returns(move), "ValueError: move must be one of", False) for move in ("UP", "", 3)),
        (raises(ZeroDivisionError("oops")), "ZeroDivisionError: oops", False),
        (raises(ZeroDivisionError("oops")), "ZeroDivisionError: oops", True),
        *(
            (raises(kind(0)), f"RuntimeError: {kind.__name__}: 0", False)
            for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, TimeoutError)
        ),
    ],
)
def test_failed_moves_are_replaced_and_counted_and_logged_once_a_game(
    metrics: Metrics,
    position: Board,
    caplog: pytest.LogCaptureFixture,
    strategy: Strategy,
    reason: str,
    is_instant: bool,
) -> None:
    runner = MoveRunner(metrics, is_instant=lambda strategy: is_instant)
    for session in (Session(strategy), Session(strategy)):
        for _ in range(3):
            decision, _seconds = decide(runner, session, position)
            assert decision.move in position.safe_moves()
            note = decision.reasons[0].note.removeprefix("the strategy failed: ")
            assert note in caplog.text
    assert caplog.text.count(f"{reason}") == 2
    assert count(metrics, "battlesnake_strategy_errors_total") == 6


def test_a_session_whose_strategy_cannot_be_built_gets_fallback_moves(
    metrics: Metrics, position: Board, hurried: Board
) -> None:
    let_go = threading.Event()

    def leave(seed: int) -> Strategy:
        sys.exit(0)

    def hang(seed: int) -> Strategy:
        let_go.wait(TIMEOUT)
        return move_left

    runner = MoveRunner(metrics)
    try:
        for factory, board in ((leave, position), (hang, hurried)):
            session = Sessions(factory).get_or_create(("game", "snake"))
            runner.prepare(session)
            decision, seconds = decide(runner, session, board)
            assert decision.move in board.safe_moves()
            assert seconds < 0.5 * TIMEOUT
    finally:
        let_go.set()
    assert count(metrics, "battlesnake_strategy_errors_total") == 1
    assert count(metrics, "battlesnake_fallback_moves_on_timeout_total") == 1


def test_a_strategy_may_return_the_name_of_a_move(metrics: Metrics, position: Board) -> None:
    session = Session(lambda board, seconds=None: "left")  # type: ignore[arg-type]
    assert decide(MoveRunner(metrics), session, position)[0] == Decision("left")


def test_only_built_in_code_is_instant() -> None:
    """A user's rule or network may take any time."""

    def slow(view: View, move: str) -> float:
        return 0.0

    def condition(view: View) -> bool:
        return True

    territory, food = preferences.territory, preferences.food
    assert is_instant(Pipeline(*SAFE, When(hungry, [food * 3], [territory])))
    assert is_instant(strategy_factory("shipped")(0))
    assert all(is_instant(snakes.make(name)) for name in ("hungry", "cautious", "territory"))
    for steps in (
        [Filter(slow)],
        [Preference(slow) * 2],
        [When(condition, [food])],
        [When(hungry, [food], [When(hungry, [Filter(slow)])])],
        [territory] * 1000,
    ):
        assert not is_instant(Pipeline(*SAFE, *steps))
    assert not is_instant(strategy_factory(DEFAULT_POLICY_PATH)(0))
    assert not is_instant(snakes.make("champion"))


def test_a_network_that_loops_costs_its_moves_and_ends(metrics: Metrics, position: Board) -> None:
    policy = Path(__file__).parents[1] / "data/hostile_policies/loop_on_board/policy.onnx"
    snake = strategy_factory(policy)(0)
    position.game = replace(position.game, timeout=500)
    session = Session(snake)
    assert_falls_back(MoveRunner(metrics, is_instant=is_instant), session, position)
    until(lambda: session.pending_move is None)


def test_a_far_engine_gets_the_fallback_at_once(metrics: Metrics, position: Board) -> None:
    session = Session(move_left)
    session.round_trip.seconds = 2 * TIMEOUT
    assert_falls_back(MoveRunner(metrics, num_slots=1), session, position)


def test_the_observed_round_trip_shortens_the_thinking(metrics: Metrics, position: Board) -> None:
    given: list[float] = []

    def strategy(board: Board, seconds: float | None = None) -> Decision:
        assert seconds is not None
        given.append(seconds)
        return Decision("left")

    runner, session = MoveRunner(metrics, num_slots=1), Session(strategy)
    for latency in ("0", "500", "20500"):
        position.you.latency = latency
        decide(runner, session, position)
    assert 0.5 * TIMEOUT < given[0] < 0.9 * TIMEOUT
    assert given[1] > given[0], "a near engine: less is held back than before anything was known"
    assert given[2] == pytest.approx(given[1] - 20, abs=5)


def test_a_quick_strategy_thinks_where_it_is_asked(metrics: Metrics, position: Board) -> None:
    threads: list[str] = []

    def strategy(board: Board, seconds: float | None = None) -> Decision:
        threads.append(threading.current_thread().name)
        return Decision("left")

    decide(MoveRunner(metrics, is_instant=lambda strategy: True), Session(strategy), position)
    decide(MoveRunner(metrics), Session(strategy), position)
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("strategy")


def test_a_search_ends_when_its_client_leaves(metrics: Metrics, position: Board) -> None:
    """There is one search slot, and both games have a minute per move."""
    search, runner, client = Search(), MoveRunner(metrics, num_slots=1), futures.Future[None]()
    began = threading.Event()

    def asked(board: Board, seconds: float | None = None) -> Decision:
        began.set()
        return search(board, seconds)

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(runner.decide, Session(asked), position, time.perf_counter(), client)
        assert began.wait(TIMEOUT)
        client.set_result(None)
        other, _ = decide(runner, Session(move_left), position)
        assert left.result().reasons[0].note == TIMEOUT_NOTE
    # The slot was free in time for the other game, whose minute ended no later.
    assert count(metrics, "battlesnake_moves_total", chosen_by="strategy") == 1, other


def test_a_quick_strategy_plays_one_move_at_a_time(metrics: Metrics, position: Board) -> None:
    runner, strategy = MoveRunner(metrics, is_instant=lambda strategy: True), Hanging()
    session = Session(strategy)
    with ThreadPoolExecutor(1) as engine:
        first = engine.submit(decide, runner, session, position)
        strategy.begun.wait(TIMEOUT)
        try:
            assert_falls_back(runner, session, position)
        finally:
            strategy.let_go.set()
        assert first.result()[0].move == "left"
    assert decide(runner, session, position)[0].move == "left", "and goes on afterwards"


def test_one_outsized_board_at_a_time_is_thought_about(metrics: Metrics, position: Board) -> None:
    runner, strategy = MoveRunner(metrics), Hanging()

    def asked(timeout: float) -> Decision:
        board = position.copy()
        board.width = board.height = 60
        board.game = replace(board.game, timeout=round(timeout * 1000))
        return decide(runner, Session(strategy), board)[0]

    assert asked(0.001).reasons[0].note == TIMEOUT_NOTE
    assert not strategy.begun.is_set(), "in no time nothing is begun"
    with ThreadPoolExecutor(1) as engine:
        first = engine.submit(asked, TIMEOUT)
        assert strategy.begun.wait(TIMEOUT)
        strategy.begun.clear()
        try:
            assert asked(SHORT).reasons[0].note == TIMEOUT_NOTE
            assert not strategy.begun.is_set(), "another one waits for no seat"
        finally:
            strategy.let_go.set()
        assert first.result().move == "left"
    assert asked(TIMEOUT).move == "left", "and the seat is free afterwards"


class Slow(Search):
    """A search that ends ``late`` seconds after its deadline, or as soon as it is told to stop."""

    def __init__(self, late: float) -> None:
        super().__init__()
        self.late, self.given = late, [0.0]

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        assert seconds is not None
        self.given.append(seconds)
        end, told = time.perf_counter() + seconds + self.late, SHOULD_STOP.get()
        assert told is not None
        while time.perf_counter() < end:
            if told():
                raise InterruptedError
            time.sleep(0.001)
        return Decision("left")


def test_a_search_that_is_late_gives_up_and_its_game_is_free(
    metrics: Metrics, hurried: Board
) -> None:
    search, runner = Slow(TIMEOUT), MoveRunner(metrics, num_slots=1)
    session = Session(search)
    assert_falls_back(runner, session, hurried)
    assert session.pending_move is None
    search.late = -SHORT
    assert decide(runner, session, hurried)[0].move == "left"


def test_how_late_thoughts_end_is_left_to_the_next_ones(metrics: Metrics, hurried: Board) -> None:
    search, runner = Slow(0.01), MoveRunner(metrics, num_slots=1)
    for _ in range(3):
        decide(runner, Session(search), hurried)
    assert search.given[3] < search.given[2] - 0.009, "the next game knows what the last one saw"


def test_the_thread_of_a_strategy_keeps_no_stop_signal(metrics: Metrics, position: Board) -> None:
    runner, told = MoveRunner(metrics, num_slots=1), list[object]()
    decide(runner, Session(move_left), position)
    runner._threads.submit(lambda: told.append(SHOULD_STOP.get()))
    until(lambda: bool(told))
    assert told == [None]


def test_what_is_left_for_lateness_is_waited_for(
    metrics: Metrics, position: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[float] = []

    def result(work: futures.Future[Decision], request: module._MoveRequest) -> Decision:
        ends.append(request.late_until)
        return work.result()

    monkeypatch.setattr(module, "_wait_for_result", result)
    runner, arrived = MoveRunner(metrics, num_slots=1), time.perf_counter()
    for late in (0.0, 5.0):
        runner._overruns._late.append(late)
        runner.decide(Session(move_left), position, arrived)
    assert ends == [pytest.approx(ends[0])] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness on Linux only")
def test_only_thoughts_beyond_the_cores_stand_back(metrics: Metrics, position: Board) -> None:
    all_there, niceness = threading.Barrier(NUM_CORES + 1), []

    def strategy(board: Board, seconds: float | None = None) -> Decision:
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        all_there.wait(TIMEOUT)
        return Decision("left")

    own = os.getpriority(os.PRIO_PROCESS, 0)
    behind = MoveRunner(metrics, low_priority=True), min(19, own + NICE_INCREMENT)
    for runner, last in ((MoveRunner(metrics), own), behind, behind):
        until(lambda near=runner._core_permits: near._value >= NUM_CORES)  # type: ignore[misc]
        niceness.clear()
        at_once(runner, strategy, position, NUM_CORES + 1)
        assert sorted(niceness) == [own] * NUM_CORES + [last]
