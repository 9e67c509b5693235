"""Thinking against the clock: the strategy while there is time, the fallback when there is none."""

from __future__ import annotations

import functools
import logging
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.search.search import SHOULD_STOP, Search
from battlesnake_server.http.connection_table import ClientState
from battlesnake_server.http.thread_pool import ThreadPool, lower_thread_priority
from battlesnake_server.live.cpu_quota import available_cores
from battlesnake_server.live.fallback import TIMEOUT_NOTE, is_normal_size, safe_move
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.search_slots import MAX_BUSY_SEARCH_S, NoSlotError, SearchSlots
from battlesnake_server.live.sessions import Session
from battlesnake_server.live.time_budget import (
    DEFAULT_TIMEOUT,
    OverrunTracker,
    grace_period,
    time_budget,
)

_MIN_TIME_BUDGET_S = 0.002
"""Seconds; with less than this no strategy is even started."""

AVAILABLE_CORES = available_cores()

NUM_CORES = max(1, int(AVAILABLE_CORES))
"""Threads that think at once without taking time from each other."""

_NUM_SEARCH_SLOTS = 4 * NUM_CORES
"""Strategies that think at once. More than there are cores, so that a search that takes all its
time does not keep out who comes a moment later; not all, so that each gets something done."""

_MAX_WAITING_REQUESTS = 100
"""Requests that wait for a seat, each in a thread of the server's."""

_MAX_STRATEGY_THREADS = 1000
"""Threads for strategies: one for each seat, and one for each strategy that hangs."""

log = logging.getLogger(__name__)


class DeadlineExceededError(Exception):
    """The time was over before the strategy answered."""


_TIMEOUT_ERRORS = (FutureTimeoutError, DeadlineExceededError, NoSlotError, InterruptedError)


class MoveRunner:
    """Runs strategies against the clock.

    ``is_instant`` ones answer in milliseconds on ordinary boards, and run where they are asked. All
    else runs in threads of their own, so that a slow one can be left behind. With more games than
    seats the time is shared: by how many asked at once recently, so that the first to come leave
    something to the others; the fallback answers those without a seat in time. How late thoughts
    ended lately is left to the next ones as a reserve. A thread cannot be stopped: a strategy that
    overruns goes on without a seat, and its game is answered by the fallback until it is done. Only
    a search gives up by itself, when its time is over or its client has left, and its game is free
    at once.

    ``low_priority`` is for servers: threads that read and answer come before strategies that are
    more than there are cores.

    Boards larger than any game's share one seat, for which no request waits; it is free again only
    when the strategy is done, for no strategy knows how long it takes on them.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        is_instant: bool = False,
        seats: int = _NUM_SEARCH_SLOTS,
        low_priority: bool = False,
    ) -> None:
        self._quick = is_instant
        self._threads = ThreadPool("thinker", _MAX_STRATEGY_THREADS)
        self._low_priority_threads = ThreadPool(
            "thinker-beside", _MAX_STRATEGY_THREADS, initializer=lower_thread_priority
        )
        self._core_permits = threading.Semaphore(
            NUM_CORES if low_priority else _MAX_STRATEGY_THREADS
        )
        self._overruns = OverrunTracker()
        self._metrics = metrics
        self._seats = SearchSlots(
            seats, num_unlimited=NUM_CORES, most_waiting=_MAX_WAITING_REQUESTS
        )
        self._outsized = threading.Semaphore(1)

    def decide(
        self, session: Session, board: Board, arrived: float, client: ClientState | None = None
    ) -> Decision:
        """Choose a move for ``board.you``; ``arrived`` is when (`time.perf_counter`) it was asked.

        Always answers, within the game's timeout less the round trip and the margin. Where the
        ``client`` leaves, at once before there was a seat, and after it as soon as a search gives
        up.
        """
        timeout = board.game.timeout / 1000 or DEFAULT_TIMEOUT
        with session.lock:
            session.round_trip.observe(board.you.latency)
            seconds = time_budget(timeout, session.round_trip.seconds)
            patience = grace_period(timeout, session.round_trip.seconds)
        reserve = self._overruns.reserve(seconds)
        deadline, patience = arrived + seconds - reserve, patience + reserve
        decision = self._think(session, board, deadline, patience, client or ClientState())
        spent = time.perf_counter() - arrived
        with session.lock:
            session.round_trip.record_own_time(spent)
        self._metrics.seconds.observe(spent)
        return decision

    def _think(
        self, session: Session, board: Board, deadline: float, grace_s: float, client: ClientState
    ) -> Decision:
        """Ask the strategy to be done at ``deadline``, and give up ``grace_s`` seconds later."""
        try:
            if not is_normal_size(board):
                decision = self._run_oversized(session, board, deadline, grace_s, client)
            elif self._quick:
                decision = self._run_inline(session, board, deadline)
            else:
                decision = self._run_in_thread(session, board, deadline, grace_s, client)
            if decision.move not in MOVES:
                raise ValueError(f"move must be one of {', '.join(MOVES)}, got {decision.move!r}")
        except _TIMEOUT_ERRORS:
            self._metrics.timeouts_avoided.inc()
            return self._fallback_decision(board, TIMEOUT_NOTE)
        except Exception as error:
            if not session.failed:  # what fails once may fail on every turn; one trace tells it all
                log.exception("the strategy failed in %s", session.name)
            session.failed = True
            self._metrics.strategy_errors.inc()
            return self._fallback_decision(board, f"the strategy failed: {error}")
        self._metrics.moves.labels("strategy").inc()
        return decision

    def _run_inline(self, session: Session, board: Board, deadline: float) -> Decision:
        """Ask a quick strategy, unless the request has waited for too long already."""
        seconds = deadline - time.perf_counter()
        # A strategy plays one move at a time: the same game asked twice at once is odd enough.
        if seconds < _MIN_TIME_BUDGET_S or not session.strategy_lock.acquire(blocking=False):
            raise DeadlineExceededError
        try:
            return session.strategy(board, seconds)
        finally:
            session.strategy_lock.release()

    def _run_in_thread(
        self, session: Session, board: Board, deadline: float, grace_s: float, client: ClientState
    ) -> Decision:
        """Ask a strategy in a thread of its own, and wait for it until its time is over."""
        with self._seats.acquire(deadline, _MIN_TIME_BUDGET_S, client) as seconds:
            until = time.perf_counter() + seconds
            work = self._start(session, board, seconds, client)
            try:
                return _result(work, session, deadline + grace_s)
            finally:
                self._overruns.observe(time.perf_counter() - until)

    def _run_oversized(
        self, session: Session, board: Board, deadline: float, grace_s: float, client: ClientState
    ) -> Decision:
        """Ask a strategy in a thread of its own, unless another outsized board is thought about."""
        seconds = min(deadline - time.perf_counter(), MAX_BUSY_SEARCH_S)
        if seconds < _MIN_TIME_BUDGET_S or not self._outsized.acquire(blocking=False):
            raise DeadlineExceededError
        try:
            work = self._start(session, board, seconds, client)
        except BaseException:
            self._outsized.release()
            raise
        work.add_done_callback(lambda done: self._outsized.release())
        return _result(work, session, deadline + grace_s)

    def _start(
        self, session: Session, board: Board, seconds: float, client: ClientState
    ) -> Future[Decision]:
        """Hand the board to the strategy, unless it is still busy with an earlier one."""
        with session.lock:
            if session.pending_move is not None:
                raise DeadlineExceededError
            work: Future[Decision] = Future()
            session.pending_move = work
        ask = functools.partial(_ask, work, session, board, seconds, client)
        if self._core_permits.acquire(blocking=False):
            work.add_done_callback(lambda done: self._core_permits.release())
            self._threads.submit(ask)
        else:
            self._low_priority_threads.submit(ask)
        return work

    def _fallback_decision(self, board: Board, why: str) -> Decision:
        self._metrics.moves.labels("fallback").inc()
        return safe_move(board, why)


def _result(work: Future[Decision], session: Session, until: float) -> Decision:
    """What came of the ``work``; a search that is late is told to give up, and left behind."""
    try:
        return work.result(max(0.0, until - time.perf_counter()))
    except FutureTimeoutError:
        if isinstance(session.strategy, Search):
            _clear_pending_move(session, work)
        raise


def _ask(
    work: Future[Decision], session: Session, board: Board, seconds: float, client: ClientState
) -> None:
    """Have the strategy do the ``work``; a search gives up where it or its client leaves."""
    before = SHOULD_STOP.set(lambda: client.disconnected or session.pending_move is not work)
    try:
        decision = session.strategy(board, seconds)
    except BaseException as error:
        _clear_pending_move(session, work)
        work.set_exception(error)
    else:
        _clear_pending_move(session, work)
        work.set_result(decision)
    finally:
        SHOULD_STOP.reset(before)


def _clear_pending_move(session: Session, work: Future[Decision]) -> None:
    """Keep nothing of a move that is done: sessions outlive it by minutes."""
    with session.lock:
        if session.pending_move is work:
            session.pending_move = None
