"""``battlesnake-gym game puzzles``: positions with one saving move, found and to be solved."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from battlesnake_gym.common.command_line import Parser, port, positive, print_error
from battlesnake_gym.replays.replay import Replay, ReplayError, find_files
from battlesnake_heuristics.analysis import scenarios
from battlesnake_heuristics.analysis.loss_analysis import NODES_BY_GRADE, find_puzzle
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_heuristics.search import search
from battlesnake_server.address_policy import open_listener
from battlesnake_server.web.pages import show
from battlesnake_server.web.puzzle_pages import create_app

_MIN_TURNS_APART = 5
"""Turns between two puzzles of one game: positions beside each other are the same one."""

_DEFAULT_PORT = 8792


def found(path: Path) -> Iterator[Scenario]:
    """The puzzles of one recorded game; raises `ReplayError` where it cannot be read."""
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
    """Find puzzles and keep them, or show them; returns 2 for what cannot be read."""
    options = parser().parse_args(argv)
    try:
        if not search.COMPILED:
            raise ValueError(search.NOT_COMPILED_MESSAGE)
        made = _made(options)
        if not options.web:
            return 0
        listener = open_listener("127.0.0.1", options.port)
    except (ValueError, OSError) as error:
        return print_error("battlesnake-gym game puzzles", error)
    app, what = create_app(made), f"{len(made)} puzzles"
    return show(app, listener, what, open_browser=not options.no_browser)


def _made(options: argparse.Namespace) -> list[Scenario]:
    """The puzzles of a file of them, or those in the games, which are kept."""
    if options.games.suffix in (".txt", ".json"):
        return scenarios.load(options.games)
    if not options.games.exists():
        raise ValueError(f"there is no file or folder {str(options.games)!r}; check the path")
    paths = find_files(options.games) if options.games.is_dir() else [options.games]
    made: list[Scenario] = []
    for path in tqdm(paths, unit="game", disable=None):
        try:
            made += found(path)
        except ReplayError as error:
            sys.stderr.write(f"skipped: {error}\n")
        if len(made) >= options.most:
            break
    del made[options.most :]
    if not made:
        raise ValueError(f"no puzzle was found in {len(paths)} games; give it more")
    scenarios.save(options.output, made)
    sys.stdout.write(f"{len(made)} puzzles kept as {options.output}\n")
    return made


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym game puzzles",
        description="Find positions in recorded games where exactly one move saves a snake, and "
        "keep them as scenarios with a grade from 1 (seen at once) to 3 (far ahead).",
        epilog="Example: battlesnake-gym game puzzles replays --web",
    )
    add = parser.add_argument
    add("games", type=Path, metavar="FOLDER", help="recorded games, or a file of puzzles")
    add("-o", "--output", type=Path, default=Path("puzzles.txt"), help="the file")
    add("--most", type=positive, default=100, help="puzzles at most")
    add("--web", action="store_true", help="show them on a page, to be solved by hand")
    add("--port", type=port, default=_DEFAULT_PORT, help="0: any free one")
    add("--no-browser", action="store_true", help="with --web: open no browser")
    return parser
