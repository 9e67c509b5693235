"""Execution of strategies with a deadline and a fallback move."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Strategy, to_decision
from battlesnake_heuristics.search.search import SHOULD_STOP, Search
from battlesnake_server.http.thread_pool import ThreadPool
from battlesnake_server.live.cpu_quota import available_cores
from battlesnake_server.live.fallback import TIMEOUT_NOTE, choose_fallback_move, is_normal_size
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.search_slots import MAX_BUSY_SEARCH_S, SearchSlots
from battlesnake_server.live.sessions import Session
from battlesnake_server.live.time_budget import DEFAULT_TIMEOUT_S, OverrunTracker

_MIN_TIME_BUDGET_S = 0.002
"""Minimum time budget in seconds.

If less time remains, the strategy is not started.
"""

AVAILABLE_CORES = available_cores()

NUM_CORES = max(1, int(AVAILABLE_CORES))
"""Number of threads that can search concurrently without competing for a core."""

_NUM_SEARCH_SLOTS = 4 * NUM_CORES
"""Number of concurrent searches.

With more slots than cores, a search that uses its full time budget does not block a request that
arrives slightly later. The number is limited, so that every search makes progress.
"""

_MAX_WAITING_REQUESTS = 100
"""Maximum number of requests that wait for a search slot, each in a server thread."""

_MAX_STRATEGY_THREADS = 1000
"""Maximum number of strategy threads.

Each search slot and each hanging strategy occupies one thread.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _MoveRequest:
    """Position for which a strategy must choose a move.

    Attributes:
        session: Session of the game.
        board: Position, with ``you`` set.
        deadline: Latest end of the strategy (`time.perf_counter`).
        late_until: Time until which the response waits for a strategy that overruns the deadline.
        disconnected: Future that completes if the client disconnects.
    """

    session: Session
    board: Board
    deadline: float
    late_until: float
    disconnected: Future[None]


class MoveRunner:
    """Runner that executes strategies with a deadline.

    Instant strategies need only milliseconds per move on normal boards, and run in the request's
    thread. Only this project's own strategies are instant. All other strategies run in other
    threads, because a thread that misses its deadline can only be abandoned:

    * A strategy that overruns continues without a search slot. Until the strategy returns, the game
      is played with fallback moves.
    * A search stops when its time is up or its client has disconnected. The game can start the next
      search immediately.

    If there are more games than search slots, the games share the time. The time budget of each
    request depends on the recent number of concurrent requests, so that the first requests leave
    time for later requests. If a request receives no slot in time, the snake plays the fallback
    move. The runner subtracts recent overruns from the time budget as a reserve.

    Oversized boards share one slot, and requests do not wait for that slot. The slot is released
    only when the strategy returns, because the duration of a search on an oversized board is
    unknown.

    Args:
        metrics: Metrics to update.
        is_instant: Function that returns whether a strategy needs only milliseconds per move.
        num_slots: Number of search slots.
        low_priority: Whether strategies beyond the number of cores run at a lower CPU priority than
            the threads that read requests and send responses. Servers set this option.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        is_instant: Callable[[Strategy], bool] = lambda strategy: False,
        num_slots: int = _NUM_SEARCH_SLOTS,
        low_priority: bool = False,
    ) -> None:
        self._is_instant = is_instant
        self._threads = ThreadPool("strategy", _MAX_STRATEGY_THREADS)
        self._low_priority_threads = ThreadPool(
            "strategy-low", _MAX_STRATEGY_THREADS, low_priority=True
        )
        self._core_permits = threading.Semaphore(
            NUM_CORES if low_priority else _MAX_STRATEGY_THREADS
        )
        self._overruns = OverrunTracker()
        self._metrics = metrics
        self._slots = SearchSlots(
            num_slots, num_unlimited=NUM_CORES, max_waiting=_MAX_WAITING_REQUESTS
        )
        self._oversized_slot = threading.Semaphore(1)

    def decide(
        self,
        session: Session,
        board: Board,
        arrived: float,
        disconnected: Future[None] | None = None,
    ) -> Decision:
        """Choose a move for ``board.you`` before the game's deadline.

        The time budget is the game's timeout minus round trip and margin. The method always returns
        a move. If the client disconnects while the request waits for a search slot, the method
        returns immediately. If the client disconnects during the search, the method returns as soon
        as the search stops.

        Args:
            session: Session of the game.
            board: Position, with ``you`` set.
            arrived: Arrival time of the request (`time.perf_counter`).
            disconnected: Future that completes if the client disconnects.
        """
        timeout = board.game.timeout / 1000 or DEFAULT_TIMEOUT_S
        with session.lock:
            session.round_trip.observe(board.you.latency)
            seconds = session.round_trip.time_budget_s(timeout)
            grace_s = session.round_trip.grace_period_s(timeout)
        end = arrived + seconds
        deadline = end - self._overruns.reserve_s(seconds)
        request = _MoveRequest(session, board, deadline, end + grace_s, disconnected or Future())
        decision = self._decide(request)
        spent = time.perf_counter() - arrived
        with session.lock:
            session.round_trip.record_own_time(spent)
        self._metrics.move_seconds.observe(spent)
        return decision

    def prepare(self, session: Session) -> None:
        """Build the strategy of a new session in another thread.

        An error is reported at the first move.
        """

        def build_strategy() -> None:
            with contextlib.suppress(BaseException):
                session.ensure_built()

        self._threads.submit(build_strategy)

    def _decide(self, request: _MoveRequest) -> Decision:
        """Run the strategy until the deadline, and abandon a late strategy."""
        session, board = request.session, request.board
        try:
            if not is_normal_size(board):
                decision = self._run_oversized(request)
            elif self._is_instant(session.strategy):
                decision = self._run_inline(request)
            else:
                decision = self._run_in_thread(request)
            _check_decision(decision)
        except (TimeoutError, InterruptedError):
            self._metrics.fallback_moves_on_timeout.inc()
            return self._fallback_decision(board, TIMEOUT_NOTE)
        except Exception as error:
            # A strategy that fails once may fail on every turn. One traceback per game is enough.
            if not session.failed:
                log.exception("the strategy failed in %s", session.name)
            session.failed = True
            self._metrics.strategy_errors.inc()
            return self._fallback_decision(board, f"the strategy failed: {error}")
        self._metrics.moves.labels("strategy").inc()
        return decision

    def _run_inline(self, request: _MoveRequest) -> Decision:
        """Run an instant strategy, unless the request has waited too long."""
        session, seconds = request.session, request.deadline - time.perf_counter()
        # A strategy plays one move at a time. Two concurrent requests of the same game are an
        # anomaly.
        if seconds < _MIN_TIME_BUDGET_S or not session.strategy_lock.acquire(blocking=False):
            raise TimeoutError
        try:
            return session.strategy(request.board, seconds)
        finally:
            session.strategy_lock.release()

    def _run_in_thread(self, request: _MoveRequest) -> Decision:
        """Run the strategy in another thread, and wait until the time is up.

        The method first waits for a search slot.
        """
        with self._slots.acquire(
            request.deadline, _MIN_TIME_BUDGET_S, request.disconnected
        ) as seconds:
            end = time.perf_counter() + seconds
            work = self._start_strategy(request, seconds)
            try:
                return _wait_for_result(work, request)
            finally:
                self._overruns.observe(time.perf_counter() - end)

    def _run_oversized(self, request: _MoveRequest) -> Decision:
        """Run the strategy on an oversized board in another thread.

        The method raises ``TimeoutError`` if another oversized board is being searched.
        """
        seconds = min(request.deadline - time.perf_counter(), MAX_BUSY_SEARCH_S)
        if seconds < _MIN_TIME_BUDGET_S or not self._oversized_slot.acquire(blocking=False):
            raise TimeoutError
        try:
            work = self._start_strategy(request, seconds)
        except BaseException:
            self._oversized_slot.release()
            raise
        work.add_done_callback(lambda done: self._oversized_slot.release())
        return _wait_for_result(work, request)

    def _start_strategy(self, request: _MoveRequest, seconds: float) -> Future[Decision]:
        """Start the strategy on the board, unless the strategy is still busy."""
        session = request.session
        with session.lock:
            if session.pending_move is not None:
                raise TimeoutError
            work: Future[Decision] = Future()
            session.pending_move = work
        run = functools.partial(_run_strategy, work, request, seconds)
        if self._core_permits.acquire(blocking=False):
            work.add_done_callback(lambda done: self._core_permits.release())
            self._threads.submit(run)
        else:
            self._low_priority_threads.submit(run)
        return work

    def _fallback_decision(self, board: Board, reason: str) -> Decision:
        """Count and return a fallback move."""
        self._metrics.moves.labels("fallback").inc()
        return choose_fallback_move(board, reason)


def _wait_for_result(work: Future[Decision], request: _MoveRequest) -> Decision:
    """Wait for the result of ``work`` until ``request.late_until``.

    A late search is stopped and abandoned.
    """
    try:
        return work.result(max(0.0, request.late_until - time.perf_counter()))
    except TimeoutError:
        if isinstance(request.session.strategy, Search):
            _clear_pending_move(request.session, work)
        raise


def _run_strategy(work: Future[Decision], request: _MoveRequest, seconds: float) -> None:
    """Run the strategy and set the result of ``work``.

    A search stops if the move is abandoned or the client disconnects.
    """
    session = request.session
    before = SHOULD_STOP.set(
        lambda: request.disconnected.done() or session.pending_move is not work
    )
    try:
        session.ensure_built()
        decision = to_decision(session.strategy(request.board, seconds))
    except BaseException as error:
        _clear_pending_move(session, work)
        # A TimeoutError of `Future.result` means that the strategy missed the deadline.
        if isinstance(error, TimeoutError) or not isinstance(error, Exception):
            failure = RuntimeError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            work.set_exception(failure)
        else:
            work.set_exception(error)
    else:
        _clear_pending_move(session, work)
        work.set_result(decision)
    finally:
        SHOULD_STOP.reset(before)


def _check_decision(decision: Decision) -> None:
    """Raise an exception if the decision is invalid."""
    if decision.move not in MOVES:
        raise ValueError(f"move must be one of {', '.join(MOVES)}, got {decision.move!r}")
    if not isinstance(decision.shout, str):
        raise ValueError(f"shout must be text, got {decision.shout!r:.60}")


def _clear_pending_move(session: Session, work: Future[Decision]) -> None:
    """Clear the pending move of a session.

    The session exists for minutes after the move and must not retain the move.
    """
    with session.lock:
        if session.pending_move is work:
            session.pending_move = None
