"""``battlesnake-gym game analyze``: analyze every turn of a game.

A strong search analyzes each turn.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

from tqdm import tqdm

from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    add_view_radius_option,
    bounded_number,
    output_dir,
    plural,
    positive,
    print_json,
    reports_errors,
)
from battlesnake_gym.common.untrusted_text import path_text
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis.game_analysis import GameAnalysis, analysis_path, analyze_game
from battlesnake_heuristics.analysis.mistakes import MoveAssessment
from battlesnake_heuristics.analysis.position_analysis import ANALYSIS_NODES
from battlesnake_heuristics.search import search
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.replay_viewer import game_fetcher
from battlesnake_server.replay_viewer.replay_library import has_view_radius


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Analyze a game and print its worst mistakes.

    The exit status is 2 if the game cannot be analyzed.
    """
    command = parser()
    options = command.parse_args(argv)
    if not search.COMPILED:
        raise ValueError(search.NOT_COMPILED_MESSAGE)
    # `analyze_game` saves the unfinished analysis.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if options.quiet:
        command.reject_given(options, ["json"], "with --quiet")
    if Path(options.game).exists():
        command.reject_given(options, ["fetch_dir", "allow_networks"], "on files")
    path = game_fetcher.resolve_game(
        options.game, AddressPolicy.from_options(options), options.fetch_dir,
        ruleset=options.ruleset, board_map=options.map,
    )  # fmt: skip
    if options.view_radius is not None and has_view_radius(path):
        command.reject_given(options, ["view_radius"], "on games with a view radius")
    with tqdm(unit="turn", desc="analyzing", disable=options.quiet or None, delay=0.1) as bar:
        title = "" if options.quiet else f"analyzing {path_text(path.name)}"
        on_update = _make_progress_callback(bar, title)
        analysis = analyze_game(path, options.nodes, options.jobs, on_update, options.view_radius)
    names = {snake.id: snake.name or snake.id for snake in Replay.stream(path)[0].first.snakes}
    if options.json:
        print_json(_to_dict(analysis, names))
    elif not options.quiet:
        sys.stdout.write(_format_report(analysis, names))
        radius = "" if options.view_radius is None else f" --view-radius {options.view_radius}"
        sys.stdout.write(
            f"saved as {path_text(analysis_path(path))}; "
            f"to view it: battlesnake-gym game watch {path_text(path)}{radius}\n"
        )
    return 0


def _format_report(analysis: GameAnalysis, names: dict[str, str]) -> str:
    """Format the mistakes in game order."""
    mistakes = analysis.mistakes
    lines = [
        f"{plural(len(analysis.positions), 'turn')}, {plural(analysis.nodes, 'node')} per snake; "
        f"blunders (??): {sum(mistake.annotation == '??' for mistake in mistakes)}, "
        f"mistakes (?): {sum(mistake.annotation == '?' for mistake in mistakes)}"
    ]
    lines += [_format_mistake(mistake, names) for mistake in mistakes]
    return "\n".join(lines) + "\n"


def _to_dict(analysis: GameAnalysis, names: dict[str, str]) -> dict[str, Any]:
    """Convert the analysis, with all mistakes, to a dict of JSON values."""
    mistakes = [
        dataclasses.asdict(mistake)
        | {"name": names[mistake.snake_id], "annotation": mistake.annotation}
        for mistake in analysis.mistakes
    ]
    return {"turns": len(analysis.positions), "nodes": analysis.nodes, "mistakes": mistakes}


def _format_mistake(mistake: MoveAssessment, names: dict[str, str]) -> str:
    """Format a mistake as one line."""
    name = sanitize_text(names[mistake.snake_id], 24)
    return (
        f"  turn {mistake.turn:>4}  {name:<24} {mistake.move:>5}{mistake.annotation:<2} "
        f"about {mistake.best_win_probability:4.0%} -> {mistake.played_win_probability:4.0%}   "
        f"{mistake.better_move} was better"
    )


def _make_progress_callback(bar: tqdm[Never], title: str) -> Callable[[GameAnalysis], None]:
    """Return a callback that prints a title, unless it is empty, and updates the progress bar."""

    def update_bar(analysis: GameAnalysis) -> None:
        if title and bar.total is None:
            bar.write(title, sys.stderr)
        bar.total = analysis.last - analysis.first + 1
        bar.update(len(analysis.positions) - bar.n)

    return update_bar


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym game analyze",
        description="Analyze every turn of a recorded game with a strong search: win "
        "probabilities, best moves and mistakes of every snake. Results are saved beside the game "
        "and shown by `game watch`; an interrupted analysis resumes.",
        epilog="Example: battlesnake-gym game analyze replays/final.jsonl.gz",
    )
    add = parser.add_argument
    add("game", metavar="GAME", help="replay file, or the id or URL of a game "
        "(arena.battlesnake.com, an engine, or this arena)")  # fmt: skip
    add("--nodes", type=positive, default=ANALYSIS_NODES, metavar="N",
        help="search nodes per living snake and turn")  # fmt: skip
    add("--jobs", type=bounded_number(int, 1, 256), default=1, metavar="N",
        help="number of processes")  # fmt: skip
    add("--fetch-dir", type=output_dir, default=Path(), metavar="DIR",
        help="directory for fetched games (default: current directory)")  # fmt: skip
    add_view_radius_option(parser)
    add("--quiet", action="store_true", help="print nothing")
    add_json_option(parser)
    game_fetcher.add_options(parser)
    address_policy.add_options(parser, redirects=False)
    return parser
