"""``battlesnake-gym game analyse``: what a strong search thinks of every turn of a game."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Never

from tqdm import tqdm

from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.common.command_line import (
    Parser,
    add_json,
    bounded_number,
    milliseconds,
    print_error,
    writable,
    write_json,
)
from battlesnake_gym.replays.replay import Replay, ReplayError
from battlesnake_heuristics.analysis.game_analysis import GameAnalysis, analysis_path, analyze_game
from battlesnake_heuristics.analysis.mistakes import MoveAssessment
from battlesnake_heuristics.search import search
from battlesnake_server import address_policy
from battlesnake_server.replay_viewer import game_fetcher

_PROG = "battlesnake-gym game analyse"

_MOST_MARKS = 12
"""Mistakes that are printed; the viewer shows all."""


def main(argv: list[str] | None = None) -> int:
    """Analyse a game and print its turning points; returns 2 for what cannot be analysed."""
    options = parser().parse_args(argv)
    if not search.COMPILED:
        return print_error(_PROG, search.NOT_COMPILED_MESSAGE)
    signal.signal(signal.SIGTERM, _leave)
    try:
        path = game_fetcher.resolve_game(
            options.game, address_policy.from_options(options), options.folder,
            ruleset=options.ruleset, board_map=options.map,
        )  # fmt: skip
        with tqdm(unit="turn", disable=options.quiet or None) as bar:
            analysis = analyze_game(path, options.milliseconds, options.jobs, _progress(bar))
        names = {snake.id: snake.name or snake.id for snake in Replay.stream(path)[0].first.snakes}
    except (ReplayError, ValueError, OSError) as error:
        return print_error(_PROG, error)
    if options.json:
        write_json(to_json(analysis, names))
    elif not options.quiet:
        sys.stdout.write(report(analysis, names))
        sys.stdout.write(
            f"kept as {analysis_path(path)}; look at it: battlesnake-gym game watch {path}\n"
        )
    return 0


def report(analysis: GameAnalysis, names: dict[str, str]) -> str:
    """The turning points: the moves that cost most, in the order of the game."""
    found = analysis.mistakes or []
    worst = sorted(found, key=lambda mark: -mark.loss)[:_MOST_MARKS]
    lines = [
        f"{len(analysis.positions)} turns, {analysis.move_time_ms:g} ms a snake: "
        f"{sum(mark.annotation == '??' for mark in found)} moves marked ??, "
        f"{sum(mark.annotation == '?' for mark in found)} marked ?"
    ]
    lines += [_line(mark, names) for mark in sorted(worst, key=lambda mark: mark.turn)]
    return "\n".join(lines) + "\n"


def to_json(analysis: GameAnalysis, names: dict[str, str]) -> dict[str, Any]:
    """The report as ``--json`` prints it, with all moves that are marked."""
    marks = [
        dataclasses.asdict(mark) | {"name": names[mark.snake_id], "sign": mark.annotation}
        for mark in analysis.mistakes or []
    ]
    return {
        "turns": len(analysis.positions),
        "milliseconds": analysis.move_time_ms,
        "marks": marks,
    }


def _line(mark: MoveAssessment, names: dict[str, str]) -> str:
    name = sanitize_text(names[mark.snake_id], 24)
    return (
        f"  turn {mark.turn:>4}  {name:<24} {mark.move:>5}{mark.annotation:<2} "
        f"about {mark.best_win_probability:4.0%} -> {mark.played_win_probability:4.0%}   {mark.better} was better"
    )


def _progress(bar: tqdm[Never]) -> Callable[[GameAnalysis], None]:
    def tell(analysis: GameAnalysis) -> None:
        bar.total = analysis.last - analysis.first + 1
        bar.update(len(analysis.positions) - bar.n)

    return tell


def _leave(number: int, frame: FrameType | None) -> None:
    """Asked to end: what was found is kept on the way out."""
    sys.exit(128 + number)


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_PROG,
        description="Let a strong search look at every turn of a recorded game, for every snake: "
        "chances to win, best moves, mistakes. What it finds is kept beside the game, for `watch` "
        "and the arena to show; interrupted, it goes on where it was.",
        epilog="Example: battlesnake-gym game analyse replays/final.jsonl.gz",
    )
    add = parser.add_argument
    add("game", metavar="GAME", help="a recorded game of ours or of the official command line, or "
        "the id or address of a game of arena.battlesnake.com, an engine or our arena")  # fmt: skip
    add(
        "--milliseconds",
        type=milliseconds,
        default=50.0,
        metavar="MS",
        help="CPU time for each living snake of each turn",
    )
    add("--jobs", type=bounded_number(int, 1, 256), default=1, metavar="N", help="processes")
    add("--folder", type=writable, default=Path(), help="where games that are fetched are kept "
        "(default: here)")  # fmt: skip
    add("--quiet", action="store_true", help="print nothing")
    add_json(parser)
    game_fetcher.add_options(parser)
    return parser
