"""Thinking against the clock: the strategy while there is time, the fallback when there is none."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

from battlesnake_gym.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision
from server.budget import DEFAULT_TIMEOUT, budget, margin
from server.fallback import safe_move
from server.metrics import Metrics
from server.sessions import Session

LEAST_BUDGET = 0.002
"""Seconds; with less than this no strategy is even started."""

log = logging.getLogger(__name__)


class OutOfTimeError(Exception):
    """The strategy's turn came when its time was over already."""


class Thinker:
    """Runs strategies in threads of its own, so that a slow one can be left behind.

    A thread cannot be stopped: a strategy that overruns goes on in the background, and its game is
    answered by the fallback until it is done. ``threads`` bounds how many think at once; where all
    are taken, waiting counts against the budget and ends in the fallback.
    """

    def __init__(self, threads: int, metrics: Metrics) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="thinker")
        self._metrics = metrics

    def decide(self, session: Session, board: Board, arrived: float) -> Decision:
        """Choose a move for ``board.you``; ``arrived`` is when (`time.perf_counter`) it was asked.

        Always answers, within the game's timeout less the round trip and the margin.
        """
        timeout = board.game.timeout / 1000 or DEFAULT_TIMEOUT
        with session.lock:
            session.round_trip.observe(board.you.latency)
            seconds = budget(timeout, session.round_trip.seconds)
            work = self._start(session, board, arrived + seconds)
        decision = self._wait(work, board, arrived + seconds + margin(timeout) / 2)
        spent = time.perf_counter() - arrived
        with session.lock:
            session.round_trip.answered(spent)
            session.board, session.decision = board, decision
        self._metrics.seconds.observe(spent)
        return decision

    def _start(self, session: Session, board: Board, deadline: float) -> Future[Decision] | None:
        """Hand the board to the strategy; None where it is still busy or there is no time."""
        if session.thinking is not None and not session.thinking.done():
            return None
        if deadline - time.perf_counter() < LEAST_BUDGET:
            return None

        def think() -> Decision:
            left = deadline - time.perf_counter()
            if left < LEAST_BUDGET:
                raise OutOfTimeError
            return session.strategy(board, left)

        session.thinking = self._pool.submit(think)
        return session.thinking

    def _wait(self, work: Future[Decision] | None, board: Board, deadline: float) -> Decision:
        if work is None:
            return self._too_late(board)
        try:
            decision = work.result(max(0.0, deadline - time.perf_counter()))
            if decision.move not in MOVES:
                raise ValueError(f"move must be one of {', '.join(MOVES)}, got {decision.move!r}")
        except (FutureTimeoutError, OutOfTimeError):
            work.cancel()
            return self._too_late(board)
        except Exception as error:
            log.exception("the strategy failed in game %s", board.game.id)
            self._metrics.strategy_errors.inc()
            self._metrics.moves.labels("fallback").inc()
            return safe_move(board, f"the strategy failed: {error}")
        self._metrics.moves.labels("strategy").inc()
        return decision

    def _too_late(self, board: Board) -> Decision:
        self._metrics.timeouts_avoided.inc()
        self._metrics.moves.labels("fallback").inc()
        return safe_move(board, "the strategy was not ready in time")
