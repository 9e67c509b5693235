"""``battlesnake-gym game export``: a recorded game as a picture, a film or a page.

What is written follows from the file's name: ``.gif`` and ``.mp4`` move, ``.png`` and ``.svg`` show
one turn, ``.html`` is a page that plays the game and needs nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser, bounded_number, natural, print_error
from battlesnake_gym.common.extras import install_remedy, load_module
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.draw import animation, drawing
from battlesnake_gym.replays.replay import Replay

_COMMAND = "battlesnake-gym game export"


def main(argv: list[str] | None = None) -> int:
    """Write the file that is named; the exit status is 2 for a wrong call."""
    options = parser().parse_args(argv)
    output: Path | None = options.output
    if output is None:
        return print_error(_COMMAND, "there is nothing to write; name it with -o game.gif")
    if output.suffix not in _WRITERS:
        return print_error(_COMMAND, unknown_name_message("format", output.suffix, _WRITERS))
    try:
        replay = Replay.load(options.source)
        _WRITERS[output.suffix](replay, output, options)
    except ModuleNotFoundError as error:
        return print_error(_COMMAND, f"{error.name!r} is missing; {install_remedy('video')}")
    except (ValueError, OSError) as error:
        return print_error(_COMMAND, error)
    size = output.stat().st_size / 1000
    sys.stdout.write(f"wrote {output} ({len(replay.turns)} turns, {size:,.0f} kB)\n")
    return 0


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_COMMAND,
        description="Turn a recorded game into a GIF, an MP4, a PNG, an SVG or an HTML page. A "
        "film of a game that was analysed has the bar of the snakes' chances. "
        "`battlesnake-gym runs export` makes a policy of a checkpoint.",
        epilog="example: battlesnake-gym game export replays/game.jsonl.gz -o game.gif",
    )
    add = parser.add_argument
    add("source", type=Path, metavar="GAME",
        help="a replay, or a file of the official command line")  # fmt: skip
    add("-o", "--output", type=Path, metavar="FILE",
        help=f"its name ends in one of {', '.join(_WRITERS)}")  # fmt: skip
    add("--cell", type=bounded_number(int, 2, 200), default=animation.CELL, metavar="PIXELS",
        help="side of a cell in pictures and films")  # fmt: skip
    add(
        "--turns-per-second",
        type=bounded_number(int, 1, 100),
        default=7,
        metavar="N",
        help="speed of a film",
    )
    add(
        "--turn",
        type=natural,
        metavar="N",
        help="which turn a PNG or SVG shows (default: the last)",
    )
    return parser


# --- the formats --------------------------------------------------------------------------------


def _gif(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    animation.save_gif(replay.boards(), output, *_how(options))


def _mp4(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    animation.save_mp4(replay.boards(), output, *_how(options))


def _how(options: argparse.Namespace) -> tuple[int, float, animation.WinProbabilities]:
    """How a film is made: with the bar of chances, where the game was analysed."""
    analyses = load_module("battlesnake_heuristics.analysis.game_analysis", "")
    analysis = analyses.known(options.source)
    chances = analysis.chances if analysis else animation.unknown
    return options.cell, 1 / options.turns_per_second, chances


def _png(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    drawing.save_png(_turn(replay, options), output, options.cell)


def _svg(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    text = drawing.svg(_turn(replay, options), options.cell)
    write_atomically(output, lambda part: part.write_text(text, "utf-8"))


def _html(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    """One file with the game, the board's script and its styles in it."""
    small_player = load_module("battlesnake_server.replay_viewer.embedded_player", "")
    page = small_player.read("templates/export.html")
    page = page.replace("@STYLE@", small_player.style(), 1)
    page = page.replace("@PLAYER@", small_player.part(replay, options.turns_per_second), 1)
    write_atomically(output, lambda part: part.write_text(page, "utf-8"))


def _turn(replay: Replay, options: argparse.Namespace) -> Board:
    return replay.last if options.turn is None else replay.board(options.turn)


_WRITERS: dict[str, Callable[[Replay, Path, argparse.Namespace], None]] = {
    ".gif": _gif,
    ".mp4": _mp4,
    ".png": _png,
    ".svg": _svg,
    ".html": _html,
}
