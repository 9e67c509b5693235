"""``battlesnake-gym snakes check``: check a snake.

The command checks legal moves, speed and strength.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser, milliseconds, reports_errors
from battlesnake_gym.common.exceptions import describe_exception
from battlesnake_gym.common.watchdog import Watchdog
from battlesnake_gym.snakes import Decision, Strategy, StrategyFactory
from battlesnake_heuristics.analysis.scenarios import BUILTIN_SCENARIOS, ScenarioResult, load
from battlesnake_heuristics.commands.snakes_new_command import check_new_file
from battlesnake_heuristics.rating.match import MatchSettings, play_pair
from battlesnake_heuristics.rating.sprt import PAIR_SCORES, EloEstimate, Sprt
from battlesnake_heuristics.rule_based.filters import FILTERS
from battlesnake_heuristics.rule_based.pipeline import Pipeline
from battlesnake_server.arena.guarded_strategy import make_strategy

_NOT_WEAKER_SPRT = Sprt(-70, 0)
"""SPRT of the hypotheses H0 (70 Elo weaker) and H1 (not weaker)."""

_MAX_PAIRS = 60
"""Maximum number of game pairs against the earlier version."""

_OPPONENT_NAME = "cautious"

_MAX_CALL_S = 60.0
"""Maximum duration of loading a snake, and of one move, in seconds.

A call that exceeds the limit ends the process, because Python cannot cancel a call.
"""

_watchdog = Watchdog()


class _SnakeCheckError(Exception):
    """Error raised if the snake fails the check; the message contains the reason."""


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Check a snake.

    Returns:
        0 if the snake passes, 1 if the snake fails, 2 for invalid options.
    """
    options = parser().parse_args(argv)
    new = _checked_factory(_limited_factory(options.snake), options.max_move_time)
    old = None
    if options.against:
        limited = _limited_factory(options.against)
        old = _run_calls_in(lambda board: snakes.named_errors(options.against), limited)
    try:
        for line in _iter_findings(new, old, options.against):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    except _SnakeCheckError as error:
        sys.stdout.write(f"REJECTED: {error}\n")
        return 1
    sys.stdout.write("passed\n")
    return 0


def _run_calls_in(
    context: Callable[[Board | None], AbstractContextManager[None]], make: StrategyFactory
) -> StrategyFactory:
    """Return a factory whose calls, and whose strategies' calls, run in a context.

    Args:
        context: Function of the position that returns the context; the position is None for a call
            of the factory.
        make: The factory to wrap.
    """

    def factory(seed: int) -> Strategy:
        with context(None):
            strategy = make(seed)

        def decide(board: Board, seconds: float | None = None) -> Decision:
            with context(board):
                return snakes.to_decision(strategy(board, seconds))

        return decide

    return factory


def _limited_factory(name: str) -> StrategyFactory:
    """Load a snake whose calls end the process after `_MAX_CALL_S` seconds."""

    def reject(board: Board | None) -> None:
        where = "" if board is None else f", on\n{board}"
        sys.stdout.write(f"REJECTED: {name} does not return within {_MAX_CALL_S:g} s{where}\n")
        sys.stdout.flush()
        os._exit(1)

    def limit(board: Board | None) -> AbstractContextManager[None]:
        return _watchdog.limit(_MAX_CALL_S, lambda: reject(board))

    with limit(None), snakes.named_errors(name, (ValueError, OSError)):
        return _run_calls_in(limit, snakes.factory(name))


def _checked_factory(make: StrategyFactory, max_ms: float) -> StrategyFactory:
    """Wrap a factory so that the snakes raise `_SnakeCheckError` for failed moves.

    A move fails if the strategy raises an exception, returns no move, or exceeds the CPU time
    limit.

    Args:
        make: Factory of the snake.
        max_ms: CPU time limit per move, in milliseconds.
    """

    @contextmanager
    def check(board: Board | None) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # This clause also catches SystemExit.
            raise _SnakeCheckError(
                f"the snake raises {describe_exception(error)}, on this board:\n{board}"
            ) from error
        spent_ms = 1000 * (time.process_time() - began)
        if board is not None and spent_ms > max_ms:
            raise _SnakeCheckError(
                f"the snake used {spent_ms:.0f} ms of CPU time for a move, more than "
                f"{max_ms:g} ms, on this board:\n{board}"
            )

    # `make_strategy` raises the exceptions of ``make`` on the first move.
    return _run_calls_in(check, functools.partial(make_strategy, make))


def _iter_findings(
    new: StrategyFactory, old: StrategyFactory | None, old_name: str
) -> Iterator[str]:
    """Check a snake, and yield the findings, one line each.

    Args:
        new: Factory of the snake to check.
        old: Factory of the snake's earlier version, or None.
        old_name: Name of the earlier version.

    Raises:
        _SnakeCheckError: At the first finding that rejects the snake.
    """
    scenarios = [one for file in BUILTIN_SCENARIOS for one in load(file)]
    results = [one.run(new(0)) for one in scenarios]
    failed = [one for one in results if not one.passed]
    yield f"legal and in time: {len(scenarios) - len(failed)} of {len(scenarios)} scenarios passed"
    yield from map(_describe_failure, failed)
    if old is None:
        score = statistics.fmean(
            PAIR_SCORES[
                play_pair(MatchSettings(), new, snakes.factory(_OPPONENT_NAME), 1, index)[0]
            ]
            for index in range(4)
        )
        yield f"score {score:.0%} in 8 two-snake games against {_OPPONENT_NAME}"
        return
    regressions = [one.scenario.name for one in failed if one.scenario.run(old(0)).passed]
    if regressions:
        raise _SnakeCheckError(f"regression: {old_name} passed {', '.join(regressions)}")
    counts = [0] * len(PAIR_SCORES)
    for index in range(_MAX_PAIRS):
        counts[play_pair(MatchSettings(), new, old, 1, index)[0]] += 1
        if verdict := _NOT_WEAKER_SPRT.decide(counts):
            break
    estimated = EloEstimate.from_pairs(counts)
    games = 2 * estimated.pairs
    summary = f"score {estimated.score:.0%} in {games} two-snake games against {old_name}"
    if verdict == "H0" or (verdict is None and estimated.score < 0.5):
        raise _SnakeCheckError(f"regression: {summary}")
    yield summary


def _describe_failure(failed: ScenarioResult) -> str:
    """Describe a failed scenario.

    The description names the filters that would have vetoed the move.
    """
    scenario, move = failed.scenario, failed.decision.move
    helpful = []
    for name, rule in FILTERS.items():
        vetoed = {m for reason in Pipeline(rule)(scenario.board).reasons for m in reason.vetoed}
        if move in vetoed and not vetoed & set(scenario.allowed):
            helpful.append(f"filters.{name}")
    try_it = f"; try {' or '.join(helpful)}" if helpful else ""
    return f"- {scenario.name}: {move}, not {' or '.join(scenario.allowed)}{try_it}"


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym snakes check",
        description="Check a snake: its moves must be legal and in time, in scenarios and in "
        "games. With --against, a snake that is weaker than its earlier version is rejected.",
        epilog="exit status: 0 if the snake passes, 1 if it is rejected, 2 for invalid options. "
        "Example: battlesnake-gym snakes check new.py --against old.py",
    )
    add = parser.add_argument
    add("snake", metavar="SNAKE", help="my_snake.py, or any other snake that plays in this process")
    add("--against", metavar="SNAKE", help="earlier version to compare with")
    add("--max-move-time", type=milliseconds, default=400.0, metavar="MS",
        help="maximum CPU time per move, in milliseconds (default: %(default)s)")  # fmt: skip
    return parser


_TEMPLATE = '''"""A snake: edit RULES, ordered by importance, and run the check after every edit.

Filters veto moves: {filters}.
Preferences score the remaining moves: food, space, territory, center, edge, straight, tail, hunt,
distance, unharmed. When(hungry, [...], [...]) chooses by a condition. See
docs/tutorials/first-snake.md.
"""

from battlesnake_gym import snakes
from battlesnake_heuristics.rule_based import conditions, filters, preferences
from battlesnake_heuristics.rule_based.pipeline import Pipeline, When

RULES = [
    filters.walls,
    filters.neck,
    preferences.food,
]


def {name}(seed):
    """Describe the snake in one line."""
    return Pipeline(*RULES, seed=seed)


snakes.register("{name}", {name})
'''


def write_template(path: Path) -> None:
    """Write a new snake from the template.

    Raises:
        ValueError: If the file exists, or its name is not the name of a Python module.
    """
    check_new_file(path)
    path.write_text(_TEMPLATE.format(name=path.stem, filters=", ".join(FILTERS)))
