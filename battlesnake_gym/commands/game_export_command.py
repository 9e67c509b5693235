"""``battlesnake-gym game export``: export a replay as an image, animation or page.

The suffix of the output file selects the format: ``.gif`` and ``.mp4`` are animations, ``.png`` and
``.svg`` show one turn, ``.html`` is a self-contained page that plays back the game.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import (
    Parser,
    bounded_number,
    natural,
    output_file,
    plural,
    reports_errors,
)
from battlesnake_gym.common.extras import install_remedy, load_module
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.draw import animation, drawing
from battlesnake_gym.replays.replay import Replay

_Writer = Callable[[Replay, Path, argparse.Namespace], None]


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Write the output file.

    Returns:
        The exit status: 0 on success, or 2 for a usage error.
    """
    command = parser()
    options = command.parse_args(argv)
    output: Path | None = options.output
    if output is None:
        raise ValueError("no output file; name it with -o game.gif")
    if output.suffix not in _FORMATS:
        raise ValueError(unknown_name_message("format", output.suffix, _FORMATS))
    write, names = _FORMATS[output.suffix]
    command.reject_given(options, names, f"on {output.suffix} files")
    replay = Replay.load(options.source)
    try:
        write(replay, output, options)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name!r} is missing; {install_remedy('video')}") from error
    size = output.stat().st_size / 1000
    shown = (
        plural(len(replay.turns), "turn")
        if "turn" in names
        else f"turn {_board_at_turn(replay, options).turn}"
    )
    sys.stdout.write(f"wrote {output} ({shown}, {size:,.0f} kB)\n")
    return 0


def parser() -> Parser:
    """Return the command-line parser."""
    parser = Parser(
        prog="battlesnake-gym game export",
        description="Export a recorded game as GIF, MP4, PNG, SVG or HTML. GIF and MP4 files of an "
        "analyzed game include a win probability bar.",
        epilog="example: battlesnake-gym game export replays/game.jsonl.gz -o game.gif",
    )
    add = parser.add_argument
    add("source", type=Path, metavar="GAME",
        help="replay file, or an output file of the official CLI")  # fmt: skip
    add("-o", "--output", type=output_file, metavar="FILE",
        help="output file; the suffix selects the format: "
        f"{', '.join([*_FORMATS][:-1])} or {[*_FORMATS][-1]}")  # fmt: skip
    add("--cell-size", type=bounded_number(int, 2, 200), default=animation.DEFAULT_CELL_SIZE,
        metavar="PIXELS", help="size of a cell, in pixels")  # fmt: skip
    add("--turns-per-second", type=bounded_number(int, 1, 100), default=7, metavar="N",
        help="playback speed of GIF, MP4 and HTML, in turns per second")  # fmt: skip
    add("--turn", type=natural, metavar="N", help="turn shown in PNG and SVG (default: the last)")
    return parser


def _save_animation(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    """Write a GIF or MP4 file; that of an analyzed game includes a win probability bar."""
    game_analysis = load_module("battlesnake_heuristics.analysis.game_analysis", "")
    analysis = game_analysis.GameAnalysis.load_current(options.source)
    save = animation.save_gif if output.suffix == ".gif" else animation.save_mp4
    probabilities = [analysis.win_probabilities] if analysis else []
    seconds_per_turn = 1 / options.turns_per_second
    total = len(replay.turns) + 1
    boards = tqdm(replay.boards(), "drawing", total, unit="turn", disable=None, delay=0.1)
    save(boards, output, options.cell_size, seconds_per_turn, *probabilities)


def _save_picture(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    """Write a PNG or SVG file."""
    board = _board_at_turn(replay, options)
    if output.suffix == ".png":
        drawing.save_png(board, output, options.cell_size)
    else:
        _write_text(output, drawing.svg(board, options.cell_size))


def _save_html(replay: Replay, output: Path, options: argparse.Namespace) -> None:
    """Write a self-contained HTML page that plays back the game."""
    embedded_player = load_module("battlesnake_server.replay_viewer.embedded_player", "")
    _write_text(output, embedded_player.render_page(replay, options.turns_per_second))


def _write_text(output: Path, text: str) -> None:
    write_atomically(output, lambda temporary: temporary.write_text(text, "utf-8"))


def _board_at_turn(replay: Replay, options: argparse.Namespace) -> Board:
    return replay.last if options.turn is None else replay.board(options.turn)


_ANIMATION = _save_animation, ("turn",)
_PICTURE = _save_picture, ("turns_per_second",)
_FORMATS: dict[str, tuple[_Writer, tuple[str, ...]]] = {
    ".gif": _ANIMATION,
    ".mp4": _ANIMATION,
    ".png": _PICTURE,
    ".svg": _PICTURE,
    ".html": (_save_html, ("cell_size", "turn")),
}
"""Function that writes a file, and attributes of the options without an effect, by format."""
