"""``battlesnake-gym play``: play against built-in snakes in the terminal.

In a terminal, the arrow keys (or w, a, s, d) steer and q quits. From a pipe, each line is a move.
A move into the snake's own neck is ignored, as on the playable page.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import secrets
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import limit_state
from battlesnake_gym.common.command_line import (
    Parser,
    add_view_radius_option,
    milliseconds,
    output_file,
    reports_errors,
    seed,
    size,
)
from battlesnake_gym.common.files import check_replaceable
from battlesnake_gym.draw.terminal_board import render_board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import RULESETS, Game, Point, Settings, default_move
from battlesnake_gym.rules.placement import MAX_SNAKES
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE

_YOU_ID = "you"

ACTIONS_BY_KEY = {
    **dict.fromkeys(("w", "up", "\x1b[A", "\x1bOA", "\xe0H"), "up"),
    **dict.fromkeys(("s", "down", "\x1b[B", "\x1bOB", "\xe0P"), "down"),
    **dict.fromkeys(("a", "left", "\x1b[D", "\x1bOD", "\xe0K"), "left"),
    **dict.fromkeys(("d", "right", "\x1b[C", "\x1bOC", "\xe0M"), "right"),
    "": "ahead",
    **dict.fromkeys(("q", "quit", "\x03", "\x04"), "quit"),
}
"""Actions by key or typed word.

The action "ahead" of the key Enter repeats the direction of the last move.
"""

_KEY_HINTS = "arrow keys or w a s d: steer · Enter: straight ahead · q: quit"
_END_HINTS = "r: rematch · a: analyze · s: save · q: quit"
_OPPOSITE_MOVES = {"up": "down", "down": "up", "left": "right", "right": "left"}
_CLEAR_SCREEN = "\033[H\033[J"


class _QuitError(Exception):
    """Exception that ends the game after the user has quit."""


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Play games until the user quits.

    Returns:
        The exit status: 0 after the end of the game or a quit, or 2 for a usage error.
    """
    command = parser()
    options = command.parse_args(argv)
    path: Path | None = options.replay
    check_replaceable(path, Replay.stream)
    replay, opponents = _new_game(options)
    if not any(map(snakes.may_use_time, options.snakes, opponents.values())):
        command.reject_given(options, ["move_time"], "on snakes that do not search")
    with contextlib.closing(_read_keys()) as keys:
        while True:
            try:
                quits = _play_game(replay, opponents, options.move_time / 1000, keys)
            finally:
                if path is not None:
                    replay.save(path)
            if quits or not _offer_rematch(replay, path, keys):
                return 0
            replay, opponents = _new_game(options)
            path = path and _unused_path(options.replay)


def _new_game(options: argparse.Namespace) -> tuple[Replay, dict[str, snakes.Strategy]]:
    """Start a game with a new seed, unless the user gave a seed; return it with the opponents.

    Raises:
        ValueError: If an option is invalid.
    """
    width, height = options.board_size
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    settings = Settings(view_radius=options.view_radius)
    game = Game(options.ruleset, options.map, settings, seed=seed)
    if len(options.snakes) >= MAX_SNAKES:
        raise ValueError(
            f"SNAKE: {len(options.snakes)} opponents, but at most {MAX_SNAKES - 1} can play "
            "against you; name fewer snakes"
        )
    opponents = {f"{i}-{name}": snakes.make(name, i) for i, name in enumerate(options.snakes, 1)}
    board = Board.new(width, height, [_YOU_ID, *opponents], game=game)
    for snake, name in zip(board.snakes, [_YOU_ID, *options.snakes], strict=True):
        snake.name = name
    return Replay(board, info={"played": "in a terminal"}), opponents


def _unused_path(path: Path) -> Path:
    """Return ``path`` or, if it exists, the first unused path with a number in its name."""
    suffix = "".join(path.suffixes)
    names = (f"{path.name.removesuffix(suffix)}-{number}{suffix}" for number in itertools.count(2))
    paths = itertools.chain([path], map(path.with_name, names))
    return next(unused for unused in paths if not unused.exists())


def _offer_rematch(replay: Replay, path: Path | None, keys: Iterator[str]) -> bool:
    """Offer a rematch, an analysis and the replay's file; return whether to play again."""
    sys.stdout.write(f"{_END_HINTS}\n")
    sys.stdout.flush()
    for key in keys:
        if key in ("r", "q", "\x03", "\x04"):
            return key == "r"
        if key in ("a", "s"):
            if path is None:
                path = _unused_path(Path(f"game-{replay.game.seed}.jsonl.gz"))
                replay.save(path)
            sys.stdout.write(f"saved as {path}\n")
            sys.stdout.flush()
        if key == "a":
            subprocess.run(
                [sys.executable, "-P", "-m", "battlesnake_gym", "game", "analyze", str(path)]
            )
            sys.stdout.write(f"{_END_HINTS}\n")
            sys.stdout.flush()
    return False


def parser() -> Parser:
    """Return the command-line parser."""
    parser = Parser(
        prog="battlesnake-gym play",
        description="Play against built-in snakes in the terminal. The arrow keys or w, a, s, d "
        "steer, Enter continues straight ahead, q quits. The game waits for your moves.",
        epilog="example: battlesnake-gym play champion cautious --board-size 11 --map royale",
    )
    add = parser.add_argument
    add("snakes", nargs="*", metavar="SNAKE", default=["champion"],
        help="opponents; see `battlesnake-gym snakes` (default: champion)")  # fmt: skip
    add("--board-size", type=size, default=str(DEFAULT_BOARD_SIZE), metavar="SIZE",
        help="width and height of the board, in cells: N or WIDTHxHEIGHT")  # fmt: skip
    add("--ruleset", choices=sorted(RULESETS), default=Game().ruleset, help="name of the ruleset")
    add("--map", default=Game().map, metavar="MAP", help="map name; see `battlesnake-gym maps`")
    add_view_radius_option(parser)
    add("--seed", type=seed, help="random seed for start positions and food (default: a new seed "
        "for each game)")  # fmt: skip
    add("--move-time", type=milliseconds, default=100, metavar="MS",
        help="thinking time of each opponent per move, in milliseconds")  # fmt: skip
    add("--replay", type=output_file, metavar="FILE",
        help="save the game to this file; a number is added for a rematch")  # fmt: skip
    return parser


def _play_game(
    replay: Replay, opponents: dict[str, snakes.Strategy], seconds: float, keys: Iterator[str]
) -> bool:
    """Play turn by turn until the game is over; return whether the user quits."""

    def steer(board: Board, seconds: float | None = None) -> snakes.Decision:
        return snakes.Decision(_choose_move(board.you.body, keys))

    players = {
        key: snakes.NamedStrategy(key.partition("-")[2], strategy)
        for key, strategy in opponents.items()
    }
    _show(replay.last)
    try:
        for _ in replay.play({_YOU_ID: steer} | players, seconds, sys.maxsize):
            _show(replay.last)
    except _QuitError:
        sys.stdout.write("you left the game\n")
        return True
    return False


def _choose_move(body: list[Point], keys: Iterator[str]) -> str:
    """Return the user's next move; moves into the neck and unknown keys are skipped.

    Raises:
        _QuitError: If the user quits the game.
    """
    ahead = default_move(body)
    neck = _OPPOSITE_MOVES[ahead] if body[0] != body[1] else ""
    actions = (ACTIONS_BY_KEY[key] for key in keys if key in ACTIONS_BY_KEY)
    action = next((action for action in actions if action != neck), "quit")
    if action == "quit":
        raise _QuitError
    return ahead if action == "ahead" else action


def _show(board: Board) -> None:
    """Draw what you see of the board between a title and the keys.

    After the end of the game, the whole board and the outcome are visible.
    """
    clear = _CLEAR_SCREEN if sys.stdout.isatty() else ""
    last_line = _format_outcome(board) if board.is_over() else _KEY_HINTS
    view_radius = None if board.is_over() else board.game.settings.view_radius
    seen = limit_state(board, _YOU_ID, view_radius)
    title = f"turn {board.turn}, {board.game.ruleset} on {board.game.map}, seed {board.game.seed}"
    sys.stdout.write(f"{clear}{title}\n{render_board(seen, sys.stdout)}{last_line}\n")
    sys.stdout.flush()


def _format_outcome(board: Board) -> str:
    winner = board.winner
    if winner is None:
        return "the game is over" if board.game.is_solo else "a draw"
    return "you won" if winner.id == _YOU_ID else f"{winner.name} won"


def _read_keys() -> Generator[str, None, None]:
    """Yield the pressed keys of a terminal, or the words of a pipe, one word per line."""
    if not sys.stdin.isatty():
        yield from (line.strip().lower() for line in sys.stdin)
        return
    if sys.platform == "win32":
        import msvcrt

        # This call enables escape sequences, such as `_CLEAR_SCREEN`, in the Windows console.
        os.system("")
        while True:
            # The Windows console reports an arrow key as a prefix and a letter.
            key = msvcrt.getwch()
            yield "\xe0" + msvcrt.getwch() if key in "\0\xe0" else key.lower().strip()
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        while keys := os.read(file, 8).decode(errors="replace"):
            yield keys.strip("\r\n") if keys.startswith("\x1b") else keys[0].lower().strip()
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
