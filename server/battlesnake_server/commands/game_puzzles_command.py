"""``battlesnake-gym game puzzles``: find positions with only one good move."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from battlesnake_gym.common.command_line import Parser, output_file, plural, reports_errors
from battlesnake_gym.common.files import check_replaceable
from battlesnake_gym.replays.replay import Replay, ReplayError, find_files
from battlesnake_heuristics.analysis import puzzles, scenarios
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_heuristics.search import search
from battlesnake_server.address_policy import PAGE_OPTIONS, add_page_options
from battlesnake_server.web.pages import serve
from battlesnake_server.web.puzzle_pages import create_app

_DEFAULT_PORT = 8792
_MAX_PUZZLES = 100


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Find and save puzzles, or serve a page of puzzles.

    Returns:
        Exit status 0, or 2 if the input cannot be read.
    """
    command = parser()
    options = command.parse_args(argv)
    if not options.web:
        command.reject_given(options, (*PAGE_OPTIONS, "no_browser"), "without --web")
    elif options.games is None or _contains_puzzles(options.games):
        command.reject_given(options, ["output"], "without games to search")
    if not search.COMPILED:
        raise ValueError(search.NOT_COMPILED_MESSAGE)
    found = _load_or_find_puzzles(options)
    if not options.web:
        return 0
    return serve(create_app(found), plural(len(found), "puzzle"), options)


def _load_or_find_puzzles(options: argparse.Namespace) -> list[Scenario]:
    """Load a file of puzzles, or save the puzzles of recorded games or the built-in puzzles."""
    path: Path | None = options.games
    if path is None and options.web:
        return _find_puzzles(None)
    if path is not None and _contains_puzzles(path):
        if not options.web:
            raise ValueError(f"{path} contains puzzles; give --web to solve them")
        return scenarios.load(path)
    check_replaceable(options.output, scenarios.load)
    found = _find_puzzles(path)
    scenarios.save(options.output, found)
    sys.stdout.write(f"{plural(len(found), 'puzzle')} saved as {options.output}\n")
    return found


def _contains_puzzles(path: Path) -> bool:
    """Return whether a file contains puzzles instead of a recorded game."""
    return path.suffix in (".txt", ".json")


def _find_puzzles(path: Path | None) -> list[Scenario]:
    """Find at most `_MAX_PUZZLES` puzzles of recorded games, or return the built-in puzzles."""
    if path is None:
        return [
            puzzle.to_scenario(game.name)
            for game in puzzles.load_builtin_puzzles()
            for puzzle in game.load_puzzles()
        ]
    if not path.exists():
        raise ValueError(f"there is no file or directory {str(path)!r}; check the path")
    paths = find_files(path) if path.is_dir() else [path]
    found: list[Scenario] = []
    for game in tqdm(paths, unit="game", disable=None):
        try:
            name = game.name.partition(".")[0]
            found += (one.to_scenario(name) for one in puzzles.Puzzle.find_all(Replay.load(game)))
        except (ReplayError, OSError) as error:
            if game == path:
                raise
            sys.stderr.write(f"skipped: {error}\n")
        if len(found) >= _MAX_PUZZLES:
            break
    if not found:
        raise ValueError(f"no puzzle was found in {plural(len(paths), 'game')}; give more games")
    return found[:_MAX_PUZZLES]


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym game puzzles",
        description="Find positions in recorded games in which exactly one move does not lose, and "
        "save them as scenarios with a difficulty from 1 (easy) to 3 (deep). Without PATH, use the "
        "built-in puzzles.",
        epilog="Example: battlesnake-gym game puzzles --web",
    )
    add = parser.add_argument
    add("games", type=Path, nargs="?", metavar="PATH",
        help="directory of replays, or file of puzzles (default: built-in puzzles)")  # fmt: skip
    add("-o", "--output", type=output_file, default=Path("puzzles.txt"),
        help="file for the puzzles")  # fmt: skip
    add("--web", action="store_true", help="serve a page on which you can solve the "
        "puzzles")  # fmt: skip
    add_page_options(parser, _DEFAULT_PORT)
    add("--no-browser", action="store_true", help="do not open a browser (with --web)")
    return parser
