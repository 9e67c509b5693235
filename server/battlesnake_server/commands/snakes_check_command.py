"""``battlesnake-gym snakes check``: is a snake fit to be submitted, and no weaker than before?"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser, milliseconds, positive, print_error
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Factory, Strategy
from battlesnake_heuristics.analysis.scenarios import BUILTIN_SCENARIOS, ScenarioResult, load
from battlesnake_heuristics.rating.match import MatchSettings, play_pair
from battlesnake_heuristics.rating.sprt import PAIR_SCORES, Sprt, estimate
from battlesnake_heuristics.rule_based.filters import FILTERS
from battlesnake_heuristics.rule_based.pipeline import Pipeline

_PROG = "battlesnake-gym snakes check"
_WEAKER = Sprt(-70, 0)
"""H0: weaker by 70 Elo or more; H1: no weaker."""

_RIVAL = "cautious"


class UnfitError(Exception):
    """Why a snake must not be submitted."""


def main(argv: list[str] | None = None) -> int:
    """Check a snake; 0 where it is fit, 1 where it is not, 2 for a wrong call."""
    options = parser().parse_args(argv)
    try:
        new = watched(snakes.factory(options.snake), options.milliseconds)
        old = snakes.factory(options.against) if options.against else None
    except (ValueError, OSError) as error:
        return print_error(_PROG, error)
    except Exception as error:  # what a file of someone else's raises
        return print_error(
            _PROG, f"{options.snake} cannot be loaded: {type(error).__name__}: {error}"
        )
    try:
        for line in findings(new, old, options.pairs):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    except UnfitError as error:
        sys.stdout.write(f"REFUSED: {error}\n")
        return 1
    sys.stdout.write("fit to be submitted\n")
    return 0


def watched(make: Factory, most: float) -> Factory:
    """``make``, whose snakes raise `UnfitError` with the board for what would lose a real game."""

    def factory(seed: int) -> Strategy:
        strategy = make(seed)

        def decide(board: Board, seconds: float | None = None) -> Decision:
            began = time.process_time()
            try:
                decision = strategy(board, seconds)
            except Exception as error:
                raise UnfitError(
                    f"it raises {type(error).__name__}: {error}, on\n{board}"
                ) from error
            took = 1000 * (time.process_time() - began)
            if decision.move not in MOVES:
                raise UnfitError(f"{decision.move!r} is no move, on\n{board}")
            if took > most:
                raise UnfitError(f"{took:.0f} ms for a move, more than {most:g}, on\n{board}")
            return decision

        return decide

    return factory


def findings(new: Factory, old: Factory | None, pairs: int) -> Iterator[str]:
    """What was found, a line each; raises `UnfitError` at the first that forbids submission."""
    scenarios = [one for file in BUILTIN_SCENARIOS for one in load(file)]
    outcomes = [one.ask(new(0)) for one in scenarios]
    failed = [one for one in outcomes if not one.passed]
    yield f"legal, in time: {len(scenarios) - len(failed)} of {len(scenarios)} scenarios passed"
    yield from map(advice, failed)
    if old is None:
        points = statistics.fmean(
            PAIR_SCORES[play_pair(MatchSettings(), new, snakes.factory(_RIVAL), 1, index)[0]]
            for index in range(4)
        )
        yield f"{points:.0%} of the points in 8 duels with {_RIVAL}"
        return
    lost = [one.scenario.name for one in failed if one.scenario.ask(old(0)).passed]
    if lost:
        raise UnfitError(f"a regression: it passed {', '.join(lost)} before")
    counts = [0] * len(PAIR_SCORES)
    for index in range(pairs):
        counts[play_pair(MatchSettings(), new, old, 1, index)[0]] += 1
        if verdict := _WEAKER.decide(counts):
            break
    seen = estimate(counts)
    said = f"{seen.score:.0%} of the points in {2 * seen.pairs} duels with what it was"
    if verdict == "H0" or (verdict is None and seen.score < 0.5):
        raise UnfitError(f"a regression: {said}")
    yield said


def advice(failed: ScenarioResult) -> str:
    """Why a scenario fails, and the rules that would have kept the snake from it."""
    scenario, move = failed.scenario, failed.decision.move
    helpful = []
    for name, rule in FILTERS.items():
        vetoed = {m for reason in Pipeline(rule)(scenario.board).reasons for m in reason.vetoed}
        if move in vetoed and not vetoed & set(scenario.allowed):
            helpful.append(f"filters.{name}")
    try_it = f"; try {' or '.join(helpful)}" if helpful else ""
    return f"- {scenario.name}: {move}, not {' or '.join(scenario.allowed)}{try_it}"


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_PROG,
        description="Is a snake fit to be submitted? Its moves are legal and in time, in given "
        "situations and in games; with --against it is refused where it is weaker than before.",
        epilog="exit status: 0 where it is fit, 1 where it is refused, 2 for a wrong call. "
        "Example: battlesnake-gym snakes check new.py --against old.py",
    )
    add = parser.add_argument
    add("snake", metavar="SNAKE", help="my_snake.py, or whatever else plays in this process")
    add("--against", metavar="SNAKE", help="what it was before the change")
    add("--pairs", type=positive, default=60, metavar="N", help="pairs of duels at most")
    add("--milliseconds", type=milliseconds, default=400.0, metavar="MS",
        help="CPU time of a move at most (default: %(default)s)")  # fmt: skip
    return parser


_TEMPLATE = '''"""A snake: edit RULES, the most important first, and check it after every edit.

Filters forbid moves: {filters}.
Preferences choose among the rest: food, space, territory, centre, edge, straight, tail, hunt,
distance, unharmed. When(hungry, [...], [...]) chooses by a condition. docs/heuristics.md has more.
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
    """What it does, in a line."""
    return Pipeline(*RULES, seed=seed)


snakes.register("{name}", {name})
'''


def write_template(path: Path) -> None:
    """Write a new snake; raises ``ValueError`` where there is a file or the name is none."""
    if path.exists():
        raise ValueError(f"{path.name} is there already; choose another name")
    if not (path.stem.isidentifier() and path.suffix == ".py"):
        raise ValueError(f"a snake's file is a name and .py, got {path.name!r}; try my_snake.py")
    path.write_text(_TEMPLATE.format(name=path.stem, filters=", ".join(FILTERS)))
