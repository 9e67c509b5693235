"""Protection against failing strategies in this process.

The fallback move replaces the move of a strategy that fails.
"""

from __future__ import annotations

import functools
import os
import sysconfig
import traceback
from importlib.util import find_spec
from pathlib import Path

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Factory, Strategy, to_decision
from battlesnake_heuristics.rating.process_pool import InterruptedBySignal
from battlesnake_server.live.fallback import FALLBACK, TIMEOUT_NOTE, safe_move

_MAX_ERROR_CHARS = 300

_FAILURE = "the strategy failed: "
"""Prefix of the note of a fallback move after an exception."""


class GuardedStrategy:
    """A strategy that never raises and plays the fallback move after any exception.

    ``SystemExit`` and other exceptions outside ``Exception`` are caught, too. Only an interrupt by
    a signal (`InterruptedBySignal`) is propagated and ends the game.

    Attributes:
        failures: Number of moves on which the strategy failed.
        error: The first exception, with its location (`describe`); "" if there was none.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.failures = 0
        self.error = ""

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Return the strategy's decision, or the fallback move after an exception.

        The note of the fallback move describes the exception.
        """
        try:
            decision = to_decision(self._strategy(board, seconds))
            if decision.move not in MOVES:
                raise ValueError(f"move must be one of {', '.join(MOVES)}, got {decision.move!r}")
        except InterruptedBySignal:
            raise
        except BaseException as error:
            text = describe(error)
            self.failures += 1
            self.error = self.error or text
            return safe_move(board, _FAILURE + text)
        return decision


def make_strategy(factory: Factory, seed: int) -> Strategy:
    """Return the strategy of one game.

    If the factory fails, the returned strategy fails on every move.
    """
    try:
        return factory(seed)
    except InterruptedBySignal:
        raise
    except BaseException as error:
        failure = error

    def fail(board: Board, seconds: float | None = None) -> Decision:
        raise failure

    return fail


def failure_of(decision: Decision) -> tuple[str, str]:
    """Return the problem behind a fallback move, and the exception if any.

    >>> failure_of(Decision("up"))
    ('', '')
    """
    for reason in decision.reasons[:1]:
        if reason.rule == FALLBACK and reason.note == TIMEOUT_NOTE:
            return "timeout", TIMEOUT_NOTE
        if reason.rule == FALLBACK:
            return "exception", reason.note.removeprefix(_FAILURE)
    return "", ""


def describe(error: BaseException) -> str:
    """Format an exception in one line: location in the author's file, type and text.

    The location is the innermost line outside this project and installed packages.

    >>> describe(ValueError("no food"))
    'ValueError: no food'
    """
    frames = traceback.extract_tb(error.__traceback__)
    authors = [frame for frame in frames if not frame.filename.startswith(_library_directories())]
    place = ""
    if authors:
        path = Path(authors[-1].filename)
        beside = path.is_relative_to(Path.cwd())
        place = f"{path.relative_to(Path.cwd()) if beside else path}, line {authors[-1].lineno}: "
    # The call str(error) may raise.
    text = str(traceback.TracebackException(type(error), error, None))
    text = " ".join(text.split())
    name = type(error).__name__
    return sanitize_text(f"{place}{name}: {text}" if text else place + name, _MAX_ERROR_CHARS)


@functools.cache
def _library_directories() -> tuple[str, ...]:
    """Return the directories of this project, installed packages and imports."""
    packages = ("battlesnake_gym", "battlesnake_heuristics", "battlesnake_server")
    found = [find_spec(package) for package in packages]
    ours = [str(Path(spec.origin).parent) for spec in found if spec and spec.origin]
    installed = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return ("<frozen importlib", *(path + os.sep for path in [*ours, *installed]))
