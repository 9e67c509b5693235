"""Train a policy, export the policy, serve snakes and play games in one run.

``make demo`` runs this script. Each step is an ordinary command. The script prints each command
before the command runs. A second run repeats every step, even if the results exist.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

_ROOT = Path(__file__).resolve().parent.parent
PROGRAM_PATH = Path(sys.executable).with_name("battlesnake-gym")
_CUSTOMIZATIONS = {
    "trained": ("#2f6fde", "shades", "bolt"),
    "cautious": ("#2a9d5c", "bendr", "round-bum"),
    "hungry": ("#e0a100", "tongue", "small-rattle"),
    "safe-random": ("#d63384", "silly", "curled"),
}
"""Snakes of the arena, with the color, head and tail of each snake."""
_START_TIMEOUT_S = 60
_FIRST_GAME_SNAKES = ("champion", "hungry", "cautious")
"""Snakes of the first game in the terminal.

These snakes need only the core package.
"""
_MOVE_TIME_S, _TURN_PAUSE_S = 0.02, 0.1
"""Thinking time per move and pause after each turn, in seconds.

These values apply to the first game.
"""


_print_line = partial(print, flush=True)  # The output may be a pipe.


def _run_command(*arguments: object) -> None:
    """Print and run a command.

    The program exits if the command fails.
    """
    command = [str(argument) for argument in arguments]
    text = _print_command(command)
    if status := subprocess.run(command, cwd=_ROOT, check=False).returncode:
        sys.exit(f"demo: this command ended with status {status}: {text}")


def _print_command(command: list[str], end: str = "") -> str:
    """Print a command as a user types it in the virtual environment, and return it."""
    text = shlex.join([Path(command[0]).name, *command[1:]])
    _print_line(f"\n$ {text}{end}")
    return text


def _free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _serve_snake(*options: object) -> Iterator[str]:
    """Serve a snake while the context is active, and yield the URL of the server."""
    port = _free_port()
    command = [str(PROGRAM_PATH), "serve", *map(str, options), "--port", str(port)]
    _print_command(command, " &")
    server = subprocess.Popen(
        command, cwd=_ROOT, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_server(url, server)
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def _wait_for_server(url: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server responds.

    The program exits if the server ends, or if the server does not respond within
    `_START_TIMEOUT_S`.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with (
            contextlib.suppress(urllib.error.URLError, ConnectionError),
            urllib.request.urlopen(f"{url}/healthz", timeout=2),
        ):
            return
        time.sleep(0.2)
    sys.exit(f"demo: the server at {url} did not respond within {_START_TIMEOUT_S} s")


def _play_first_game() -> None:
    """Play a game and print the board in the terminal.

    An interactive terminal shows every turn. Any other output contains every tenth turn.
    """
    from battlesnake_gym import snakes
    from battlesnake_gym.boards.board import Board
    from battlesnake_gym.draw.terminal_board import render_board
    from battlesnake_gym.rules import Game

    moving = sys.stdout.isatty()
    board = Board.new(11, 11, _FIRST_GAME_SNAKES, game=Game(seed=8))
    players = {name: snakes.make(name, seed) for seed, name in enumerate(_FIRST_GAME_SNAKES)}
    _print_line("A first game, while the rest is being installed:\n")
    lines = 0
    for _ in snakes.play(board, players, _MOVE_TIME_S):
        if moving or board.turn % 10 == 0 or board.is_over():
            shown = f"turn {board.turn}\n{render_board(board, sys.stdout)}"
            _print_line(("\x1b[2K\r\x1b[A" * lines if moving else "") + shown)
            lines = shown.count("\n") + 1
            time.sleep(_TURN_PAUSE_S)
    winner = ", ".join(snake.id for snake in board.living) or "no snake"
    _print_line(f"{winner} won after {board.turn} turns")


def main() -> None:
    """Train a policy for some minutes, export the policy, and play games over HTTP."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=Path("demo"), help="output directory for all results"
    )
    parser.add_argument(
        "--minutes", type=float, default=3, help="training time, in minutes (default: 3)"
    )
    parser.add_argument(
        "--games", type=int, default=24, help="number of games in the arena (default: 24)"
    )
    parser.add_argument(
        "--first-game", action="store_true", help="play one game in the terminal and exit"
    )
    args = parser.parse_args()
    if args.first_game:
        _play_first_game()
        return
    training, replays = args.folder / "run", args.folder / "replays"
    policy, results = args.folder / "policy.onnx", quote(str(args.folder / "results.sqlite"))
    shutil.rmtree(_ROOT / replays, ignore_errors=True)

    _run_command(
        PROGRAM_PATH, "train", "--minutes", f"{args.minutes:g}",
        "--runs-dir", args.folder, "--name", training.name, "--no-resume",
    )  # fmt: skip
    _run_command(PROGRAM_PATH, "runs", "export", training, "--output", policy)
    with contextlib.ExitStack() as servers:
        urls = []
        for name, (color, head, tail) in _CUSTOMIZATIONS.items():
            chosen = ("--policy", policy, "--filters") if name == "trained" else ("--snake", name)
            looks = ("--color", color, "--head", head, "--tail", tail)
            urls.append(
                f"{name}={servers.enter_context(_serve_snake(*chosen, *looks, '--send-decisions'))}"
            )
        _run_command(
            PROGRAM_PATH, "arena", *urls, "--games", args.games, "--replays", replays,
            "--database", f"sqlite:///{results}",
        )  # fmt: skip
    _print_line("\nWhat to try next:")
    for command, what in _list_next_steps(args.folder, replays, policy):
        _print_line(f"  {command}\n      {what}")


def _list_next_steps(folder: Path, replays: Path, policy: Path) -> list[tuple[str, str]]:
    """Return the commands to try next, each with a description."""
    inside = PROGRAM_PATH.is_relative_to(_ROOT)
    program = PROGRAM_PATH.relative_to(_ROOT) if inside else PROGRAM_PATH.name
    runs, games, network = (shlex.quote(str(path)) for path in (folder, replays, policy))
    return [
        (f"{program} game watch {games}", "the games, with what every snake thought (click one)"),
        (f"{program} runs {runs} --web", f"the training; also in {folder}/run/report.html"),
        (
            f"{program} arena --web --web-opponent trained={network}",
            "play against the trained snake",
        ),
        (f"{program} serve --policy {network} --filters", "put it on a port, for any engine"),
    ]


if __name__ == "__main__":
    main()
