"""Strategies that play the fallback move instead of raising an exception."""

from __future__ import annotations

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.exceptions import describe_exception
from battlesnake_gym.snakes import Decision, Strategy, StrategyFactory, to_decision
from battlesnake_heuristics.rating.process_pool import InterruptedBySignal
from battlesnake_server.live.fallback import FALLBACK_RULE, TIMEOUT_NOTE, choose_fallback_move

_FAILURE_PREFIX = "the strategy failed: "
"""Prefix of the note of a fallback move after an exception."""


def guard(strategy: Strategy) -> Strategy:
    """Return a strategy that plays the fallback move after an exception of ``strategy``.

    The strategy also catches exceptions that do not derive from ``Exception``, such as
    ``SystemExit``. The only exception that propagates is `InterruptedBySignal`, which ends the
    game. The note of the fallback move describes the exception; see `fallback_problem`.
    """

    def decide(board: Board, seconds: float | None = None) -> Decision:
        try:
            return to_decision(strategy(board, seconds))
        except InterruptedBySignal:
            raise
        except BaseException as error:
            return choose_fallback_move(board, _FAILURE_PREFIX + describe_exception(error))

    return decide


def make_strategy(factory: StrategyFactory, seed: int) -> Strategy:
    """Build the strategy for one game.

    If the factory raises an exception, the returned strategy raises that exception on every move.
    """
    try:
        return factory(seed)
    except InterruptedBySignal:
        raise
    except BaseException as error:
        failure = error

    def raise_failure(board: Board, seconds: float | None = None) -> Decision:
        raise failure

    return raise_failure


def fallback_problem(decision: Decision) -> tuple[str, str]:
    """Return the problem that caused a fallback move, and the error text.

    The two texts are empty if ``decision`` is not a fallback move.

    >>> fallback_problem(Decision("up"))
    ('', '')
    """
    for reason in decision.reasons[:1]:  # A user's rule may have the same name.
        if reason.rule == FALLBACK_RULE and reason.note == TIMEOUT_NOTE:
            return "timeout", TIMEOUT_NOTE
        if reason.rule == FALLBACK_RULE and reason.note.startswith(_FAILURE_PREFIX):
            return "exception", reason.note.removeprefix(_FAILURE_PREFIX)
    return "", ""
