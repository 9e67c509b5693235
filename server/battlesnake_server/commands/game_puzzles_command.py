"""``battlesnake-gym game puzzles``: find positions with only one good move."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from battlesnake_gym.common.command_line import Parser, positive, print_error
from battlesnake_gym.replays.replay import Replay, ReplayError, find_files
from battlesnake_heuristics.analysis import scenarios
from battlesnake_heuristics.analysis.loss_analysis import NODES_BY_GRADE, find_puzzle
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_heuristics.search import search
from battlesnake_server.address_policy import add_page_options, open_listener
from battlesnake_server.web.pages import serve
from battlesnake_server.web.puzzle_pages import create_app

_MIN_TURNS_APART = 5
"""Minimum number of turns between two puzzles of a game.

Neighboring positions would result in similar puzzles.
"""

_DEFAULT_PORT = 8792


def find_puzzles(path: Path) -> Iterator[Scenario]:
    """Yield the puzzles of one recorded game.

    Raises:
        ReplayError: If the game cannot be read.
    """
    replay = Replay.load(path)
    last = -_MIN_TURNS_APART
    for board in replay.boards():
        if board.turn < last + _MIN_TURNS_APART or len(board.living) < 2:
            continue
        for snake in board.living:
            board.you_id = snake.id
            solved = find_puzzle(board)
            if solved is not None:
                move, grade = solved
                name = f"{path.name.partition('.')[0]} turn {board.turn} {snake.name or snake.id}"
                yield Scenario(
                    name, board.copy(), (move,), f"grade {grade} of {len(NODES_BY_GRADE)}"
                )
                last = board.turn
                break


def main(argv: list[str] | None = None) -> int:
    """Find and save puzzles, or serve a page of puzzles.

    Returns:
        Exit status 0, or 2 if the input cannot be read.
    """
    options = parser().parse_args(argv)
    try:
        if not search.COMPILED:
            raise ValueError(search.NOT_COMPILED_MESSAGE)
        puzzles = _load_or_find_puzzles(options)
        if not options.web:
            return 0
        listener = open_listener(options.host, options.port)
    except (ValueError, OSError) as error:
        return print_error("battlesnake-gym game puzzles", error)
    return serve(
        create_app(puzzles),
        listener,
        f"{len(puzzles)} puzzles",
        host=options.host,
        names=options.allow_host,
        open_browser=not options.no_browser,
    )


def _load_or_find_puzzles(options: argparse.Namespace) -> list[Scenario]:
    """Load a file of puzzles, or find and save the puzzles of recorded games."""
    if options.games.suffix in (".txt", ".json"):
        return scenarios.load(options.games)
    if not options.games.exists():
        raise ValueError(f"there is no file or directory {str(options.games)!r}; check the path")
    paths = find_files(options.games) if options.games.is_dir() else [options.games]
    puzzles: list[Scenario] = []
    for path in tqdm(paths, unit="game", disable=None):
        try:
            puzzles += find_puzzles(path)
        except (ReplayError, OSError) as error:
            sys.stderr.write(f"skipped: {error}\n")
        if len(puzzles) >= options.max_puzzles:
            break
    del puzzles[options.max_puzzles :]
    if not puzzles:
        raise ValueError(f"no puzzle was found in {len(paths)} games; give more games")
    scenarios.save(options.output, puzzles)
    sys.stdout.write(f"{len(puzzles)} puzzles saved as {options.output}\n")
    return puzzles


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym game puzzles",
        description="Find positions in recorded games in which exactly one move does not lose, and "
        "save them as scenarios with a difficulty from 1 (easy) to 3 (deep).",
        epilog="Example: battlesnake-gym game puzzles replays --web",
    )
    add = parser.add_argument
    add("games", type=Path, metavar="PATH", help="directory of replays, or a file of puzzles")
    add("-o", "--output", type=Path, default=Path("puzzles.txt"), help="file for the puzzles")
    add("--max-puzzles", type=positive, default=100, metavar="N",
        help="maximum number of puzzles")  # fmt: skip
    add("--web", action="store_true", help="serve a page on which you can solve the "
        "puzzles")  # fmt: skip
    add_page_options(parser, _DEFAULT_PORT)
    add("--no-browser", action="store_true", help="do not open a browser (with --web)")
    return parser
