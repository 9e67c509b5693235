"""``battlesnake-gym play``: a game against named snakes, here in the terminal.

In a terminal the arrow keys (or w, a, s, d) steer and q leaves; from a pipe each line is a move.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser, milliseconds, print_error, seed, size
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.draw.terminal_board import picture
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import RULESETS, Game, default_move, known_maps
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE

_COMMAND = "battlesnake-gym play"
_YOU = "you"

KEYS = {
    **dict.fromkeys(("w", "k", "u", "up", "\x1b[A", "\x1bOA", "\xe0H"), "up"),
    **dict.fromkeys(("s", "j", "down", "\x1b[B", "\x1bOB", "\xe0P"), "down"),
    **dict.fromkeys(("a", "h", "l", "left", "\x1b[D", "\x1bOD", "\xe0K"), "left"),
    **dict.fromkeys(("d", "r", "right", "\x1b[C", "\x1bOC", "\xe0M"), "right"),
    "": "ahead",
    **dict.fromkeys(("q", "quit", "\x03", "\x04"), "quit"),
}
"""What may be pressed or typed, and what it means; Enter goes straight ahead."""

_CLEAR = "\033[H\033[J"


def main(argv: list[str] | None = None) -> int:
    """Play one game; returns 0 when it is over or left, 2 for a wrong call."""
    options = parser().parse_args(argv)
    width, height = options.size
    try:
        game = Game(options.ruleset, options.map, seed=options.seed)
        if options.map not in known_maps():
            raise ValueError(
                unknown_name_message("map", options.map, known_maps(), "battlesnake-gym maps")
            )
        others = {f"{i}-{name}": snakes.make(name, i) for i, name in enumerate(options.snakes, 1)}
        board = Board.new(width, height, [_YOU, *others], game=game)
    except ValueError as error:
        return print_error(_COMMAND, error)
    for snake, name in zip(board.snakes, [_YOU, *options.snakes], strict=True):
        snake.name = name
    replay = Replay(board, info={"played": "in a terminal"})
    try:
        with contextlib.closing(_pressed()) as pressed:
            _play(replay, others, options.milliseconds / 1000, pressed)
    finally:
        if options.replay is not None:
            replay.save(options.replay)
    return 0


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_COMMAND,
        description="Play against named snakes in the terminal. The arrow keys or w, a, s, d "
        "steer, Enter goes straight ahead, q leaves; the others wait for you.",
        epilog="example: battlesnake-gym play champion cautious --size 11 --map royale",
    )
    add = parser.add_argument
    add("snakes", nargs="*", metavar="SNAKE", default=["champion"],
        help="who plays against you; `battlesnake-gym snakes` lists them (default: "
        "champion)")  # fmt: skip
    add(
        "--size",
        type=size,
        default=str(DEFAULT_BOARD_SIZE),
        help="of the board: N, or WIDTHxHEIGHT",
    )
    add("--ruleset", choices=sorted(RULESETS), default=Game().ruleset, help="by which rules")
    add("--map", default=Game().map, metavar="MAP", help="`battlesnake-gym maps` lists them")
    add("--seed", type=seed, default=1, help="the same seed, the same start and food")
    add("--milliseconds", type=milliseconds, default=100, metavar="MS",
        help="how long the others may think")  # fmt: skip
    add("--replay", type=Path, metavar="FILE", help="keep the game, for watch and export")
    return parser


def _play(
    replay: Replay, others: dict[str, snakes.Strategy], seconds: float, pressed: Iterator[str]
) -> None:
    """Ask every snake and play, turn by turn, until the game is over or the person leaves."""
    clear = _CLEAR if sys.stdout.isatty() else ""
    while not (board := replay.last).is_over():
        sys.stdout.write(f"{clear}{_title(board)}\n{picture(board, sys.stdout)}")
        sys.stdout.flush()
        wanted = "ahead"
        if board.snake(_YOU).alive:
            wanted = next((KEYS[key] for key in pressed if key in KEYS), "quit")
        if wanted == "quit":
            sys.stdout.write("you left the game\n")
            return
        moves = {_YOU: default_move(board.snake(_YOU).body) if wanted == "ahead" else wanted}
        decisions = snakes.decide(board.copy(), others, seconds)
        moves |= {snake: decision.move for snake, decision in decisions.items()}
        replay.append(moves, decisions=decisions)
    board = replay.last
    sys.stdout.write(f"{clear}{_title(board)}\n{picture(board, sys.stdout)}{_outcome(board)}\n")


def _title(board: Board) -> str:
    return f"turn {board.turn}, {board.game.ruleset} on {board.game.map}"


def _outcome(board: Board) -> str:
    winner = board.winner
    if winner is None:
        return "the game is over" if board.game.solo else "a draw"
    return "you won" if winner.id == _YOU else f"{winner.name} won"


def _pressed() -> Generator[str, None, None]:
    """Keys of a terminal, or the lines of a pipe."""
    if not sys.stdin.isatty():
        yield from (line.strip().lower() for line in sys.stdin)
        return
    if sys.platform == "win32":
        import msvcrt

        os.system("")  # has the console obey escape sequences, such as `_CLEAR`
        while True:
            key = msvcrt.getwch()  # of an arrow: that it is one, and then a letter
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
