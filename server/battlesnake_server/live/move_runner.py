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
from battlesnake_heuristics.search.search import STOP, Search
from battlesnake_server.http.connection_table import Client
from battlesnake_server.http.thread_pool import Threads, stand_back
from battlesnake_server.live.cpu_quota import given_cores
from battlesnake_server.live.fallback import LATE, is_ordinary, safe_move
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.search_slots import BUSY_SECONDS, NoSeatError, Seats
from battlesnake_server.live.sessions import Session
from battlesnake_server.live.time_budget import DEFAULT_TIMEOUT, Overruns, budget, grace

LEAST_BUDGET = 0.002
"""Seconds; with less than this no strategy is even started."""

GIVEN = given_cores()

CORES = max(1, int(GIVEN))
"""Threads that think at once without taking time from each other."""

SEATS = 4 * CORES
"""Strategies that think at once. More than there are cores, so that a search that takes all its
time does not keep out who comes a moment later; not all, so that each gets something done."""

MOST_WAITING = 100
"""Requests that wait for a seat, each in a thread of the server's."""

MOST_THREADS = 1000
"""Threads for strategies: one for each seat, and one for each strategy that hangs."""

log = logging.getLogger(__name__)


class OutOfTimeError(Exception):
    """The time was over before the strategy answered."""


NOT_IN_TIME = (FutureTimeoutError, OutOfTimeError, NoSeatError, InterruptedError)


class Thinker:
    """Runs strategies against the clock.

    ``quick`` ones answer in milliseconds on ordinary boards, and run where they are asked. All
    else runs in threads of their own, so that a slow one can be left behind. With more games than
    seats the time is shared: by how many asked at once recently, so that the first to come leave
    something to the others; the fallback answers those without a seat in time. How late thoughts
    ended lately is left to the next ones as a reserve. A thread cannot be stopped: a strategy that
    overruns goes on without a seat, and its game is answered by the fallback until it is done. Only
    a search gives up by itself, when its time is over or its client has left, and its game is free
    at once.

    ``stands_back`` is for servers: threads that read and answer come before strategies that are
    more than there are cores.

    Boards larger than any game's share one seat, for which no request waits; it is free again only
    when the strategy is done, for no strategy knows how long it takes on them.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        quick: bool = False,
        seats: int = SEATS,
        stands_back: bool = False,
    ) -> None:
        self._quick = quick
        self._threads = Threads("thinker", MOST_THREADS)
        self._crowd = Threads("thinker-beside", MOST_THREADS, begin=stand_back)
        self._near = threading.Semaphore(CORES if stands_back else MOST_THREADS)
        self._overruns = Overruns()
        self._metrics = metrics
        self._seats = Seats(seats, long=CORES, most_waiting=MOST_WAITING)
        self._outsized = threading.Semaphore(1)

    def decide(
        self, session: Session, board: Board, arrived: float, client: Client | None = None
    ) -> Decision:
        """Choose a move for ``board.you``; ``arrived`` is when (`time.perf_counter`) it was asked.

        Always answers, within the game's timeout less the round trip and the margin. Where the
        ``client`` leaves, at once before there was a seat, and after it as soon as a search gives
        up.
        """
        timeout = board.game.timeout / 1000 or DEFAULT_TIMEOUT
        with session.lock:
            session.round_trip.observe(board.you.latency)
            seconds = budget(timeout, session.round_trip.seconds)
            patience = grace(timeout, session.round_trip.seconds)
        reserve = self._overruns.reserve(seconds)
        deadline, patience = arrived + seconds - reserve, patience + reserve
        decision = self._think(session, board, deadline, patience, client or Client())
        spent = time.perf_counter() - arrived
        with session.lock:
            session.round_trip.answered(spent)
        self._metrics.seconds.observe(spent)
        return decision

    def _think(
        self, session: Session, board: Board, deadline: float, patience: float, client: Client
    ) -> Decision:
        """Ask the strategy to be done at ``deadline``, and give up ``patience`` seconds later."""
        try:
            if not is_ordinary(board):
                decision = self._think_outsized(session, board, deadline, patience, client)
            elif self._quick:
                decision = self._think_here(session, board, deadline)
            else:
                decision = self._think_aside(session, board, deadline, patience, client)
            if decision.move not in MOVES:
                raise ValueError(f"move must be one of {', '.join(MOVES)}, got {decision.move!r}")
        except NOT_IN_TIME:
            self._metrics.timeouts_avoided.inc()
            return self._fall_back(board, LATE)
        except Exception as error:
            if not session.failed:  # what fails once may fail on every turn; one trace tells it all
                log.exception("the strategy failed in %s", session.name)
            session.failed = True
            self._metrics.strategy_errors.inc()
            return self._fall_back(board, f"the strategy failed: {error}")
        self._metrics.moves.labels("strategy").inc()
        return decision

    def _think_here(self, session: Session, board: Board, deadline: float) -> Decision:
        """Ask a quick strategy, unless the request has waited for too long already."""
        seconds = deadline - time.perf_counter()
        # A strategy plays one move at a time: the same game asked twice at once is odd enough.
        if seconds < LEAST_BUDGET or not session.playing.acquire(blocking=False):
            raise OutOfTimeError
        try:
            return session.strategy(board, seconds)
        finally:
            session.playing.release()

    def _think_aside(
        self, session: Session, board: Board, deadline: float, patience: float, client: Client
    ) -> Decision:
        """Ask a strategy in a thread of its own, and wait for it until its time is over."""
        with self._seats.take(deadline, LEAST_BUDGET, client) as seconds:
            until = time.perf_counter() + seconds
            work = self._start(session, board, seconds, client)
            try:
                return _result(work, session, deadline + patience)
            finally:
                self._overruns.observe(time.perf_counter() - until)

    def _think_outsized(
        self, session: Session, board: Board, deadline: float, patience: float, client: Client
    ) -> Decision:
        """Ask a strategy in a thread of its own, unless another outsized board is thought about."""
        seconds = min(deadline - time.perf_counter(), BUSY_SECONDS)
        if seconds < LEAST_BUDGET or not self._outsized.acquire(blocking=False):
            raise OutOfTimeError
        try:
            work = self._start(session, board, seconds, client)
        except BaseException:
            self._outsized.release()
            raise
        work.add_done_callback(lambda done: self._outsized.release())
        return _result(work, session, deadline + patience)

    def _start(
        self, session: Session, board: Board, seconds: float, client: Client
    ) -> Future[Decision]:
        """Hand the board to the strategy, unless it is still busy with an earlier one."""
        with session.lock:
            if session.thinking is not None:
                raise OutOfTimeError
            work: Future[Decision] = Future()
            session.thinking = work
        ask = functools.partial(_ask, work, session, board, seconds, client)
        if self._near.acquire(blocking=False):
            work.add_done_callback(lambda done: self._near.release())
            self._threads.submit(ask)
        else:
            self._crowd.submit(ask)
        return work

    def _fall_back(self, board: Board, why: str) -> Decision:
        self._metrics.moves.labels("fallback").inc()
        return safe_move(board, why)


def _result(work: Future[Decision], session: Session, until: float) -> Decision:
    """What came of the ``work``; a search that is late is told to give up, and left behind."""
    try:
        return work.result(max(0.0, until - time.perf_counter()))
    except FutureTimeoutError:
        if isinstance(session.strategy, Search):
            _let_go(session, work)
        raise


def _ask(
    work: Future[Decision], session: Session, board: Board, seconds: float, client: Client
) -> None:
    """Have the strategy do the ``work``; a search gives up where it or its client leaves."""
    before = STOP.set(lambda: client.gone or session.thinking is not work)
    try:
        decision = session.strategy(board, seconds)
    except BaseException as error:
        _let_go(session, work)
        work.set_exception(error)
    else:
        _let_go(session, work)
        work.set_result(decision)
    finally:
        STOP.reset(before)


def _let_go(session: Session, work: Future[Decision]) -> None:
    """Keep nothing of a move that is done: sessions outlive it by minutes."""
    with session.lock:
        if session.thinking is work:
            session.thinking = None
