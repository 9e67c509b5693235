"""Thinking against the clock: the strategy while there is time, the fallback when there is none."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager

from battlesnake_gym.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision
from server.budget import DEFAULT_TIMEOUT, budget, margin
from server.fallback import LATE, is_ordinary, safe_move
from server.metrics import Metrics
from server.sessions import Session

LEAST_BUDGET = 0.002
"""Seconds; with less than this no strategy is even started."""

SEATS = 4 * (os.cpu_count() or 1)
"""Strategies that think at once. More than there are cores, so that a search that takes all its
time does not keep out who comes a moment later; not all, so that each gets something done."""

MOST_THREADS = 1000
"""Threads for strategies: one for each seat, and one for each strategy that hangs."""

log = logging.getLogger(__name__)


class OutOfTimeError(Exception):
    """The time was over before the strategy answered."""


class Crowd:
    """How many are in at once, and were of late: the peak fades by half every second.

    Used as a context manager: being in counts, and the peak is what entering gives.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0
        self._peak = 0.0
        self._since = clock()

    def __enter__(self) -> float:
        with self._lock:
            now = self._clock()
            self._inside += 1
            self._peak = max(self._inside, self._peak * 0.5 ** (now - self._since))
            self._since = now
            return self._peak

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1


class Thinker:
    """Runs strategies against the clock.

    ``quick`` ones answer in milliseconds on ordinary boards, and run where they are asked. All
    else runs in threads of their own, so that a slow one can be left behind. With more games than
    seats the time is shared: by how many asked at once of late, so that the first to come leave
    something to the others; who gets no seat in time is answered by the fallback. A thread cannot
    be stopped: a strategy that overruns goes on without a seat, and its game is answered by the
    fallback until it is done.
    """

    def __init__(self, metrics: Metrics, *, quick: bool = False, seats: int = SEATS) -> None:
        self._quick = quick
        self._pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="thinker")
        self._metrics = metrics
        self._seats = seats
        self._free = threading.Semaphore(seats)
        self._crowd = Crowd()

    def decide(self, session: Session, board: Board, arrived: float) -> Decision:
        """Choose a move for ``board.you``; ``arrived`` is when (`time.perf_counter`) it was asked.

        Always answers, within the game's timeout less the round trip and the margin.
        """
        timeout = board.game.timeout / 1000 or DEFAULT_TIMEOUT
        with session.lock:
            session.round_trip.observe(board.you.latency)
            seconds = budget(timeout, session.round_trip.seconds)
        decision = self._think(session, board, arrived + seconds, margin(timeout) / 2)
        spent = time.perf_counter() - arrived
        with session.lock:
            session.round_trip.answered(spent)
        self._metrics.seconds.observe(spent)
        return decision

    def _think(self, session: Session, board: Board, deadline: float, grace: float) -> Decision:
        """Ask the strategy to be done at ``deadline``, and give up ``grace`` seconds later."""
        try:
            if self._quick and is_ordinary(board):
                decision = self._think_here(session, board, deadline)
            else:
                decision = self._think_aside(session, board, deadline, grace)
            if decision.move not in MOVES:
                raise ValueError(f"move must be one of {', '.join(MOVES)}, got {decision.move!r}")
        except (FutureTimeoutError, OutOfTimeError):
            self._metrics.timeouts_avoided.inc()
            return self._fall_back(board, LATE)
        except Exception as error:
            if not session.failed:  # what fails once may fail on every turn; one trace tells it all
                log.exception("the strategy failed in game %r", board.game.id)
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
        self, session: Session, board: Board, deadline: float, grace: float
    ) -> Decision:
        """Ask a strategy in a thread of its own, and wait for it until its time is over."""
        with self._seat(deadline) as seconds:
            work = self._start(session, board, seconds)
            return work.result(max(0.0, deadline + grace - time.perf_counter()))

    @contextmanager
    def _seat(self, deadline: float) -> Iterator[float]:
        """Wait for a seat; gives the seconds that this strategy may take of what is left."""
        with self._crowd as crowd:
            wait = deadline - time.perf_counter() - LEAST_BUDGET
            if not self._free.acquire(timeout=max(0.0, wait)):
                raise OutOfTimeError
            try:
                left = deadline - time.perf_counter()
                if left < LEAST_BUDGET:
                    raise OutOfTimeError
                yield left * min(1.0, self._seats / crowd)
            finally:
                self._free.release()

    def _start(self, session: Session, board: Board, seconds: float) -> Future[Decision]:
        """Hand the board to the strategy, unless it is still busy with an earlier one."""
        with session.lock:
            if session.thinking is not None and not session.thinking.done():
                raise OutOfTimeError
            session.thinking = self._pool.submit(session.strategy, board, seconds)
            return session.thinking

    def _fall_back(self, board: Board, why: str) -> Decision:
        self._metrics.moves.labels("fallback").inc()
        return safe_move(board, why)
