"""The console command ``battlesnake-gym``: subcommands, each loaded only when asked for."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

PROG = "battlesnake-gym"


class Command(NamedTuple):
    """Where a subcommand's ``main(argv) -> exit status`` stands, and one line on what it does."""

    target: str
    help: str
    extra: str = ""


COMMANDS = {
    "snakes": Command("heuristics.listing:main", "list the named snakes"),
    "arena": Command("server.arena:main", "let snakes (names, policies, URLs) play", "server"),
    "ladder": Command("server.ladder:main", "tell a snake's Elo by snakes of known Elo", "server"),
    "watch": Command("server.watch:main", "show replays in the browser", "server"),
    "serve": Command("server.serve:main", "run a live snake for the Battlesnake API", "server"),
    "scenarios": Command("server.scenarios:main", "test a snake on given situations", "server"),
    "train": Command("mabs.launcher:main", "train a policy with DQN or APEX on Ray RLlib", "rllib"),
    "plot": Command("mabs.plot:main", "draw the learning curves of several runs", "rllib"),
    "evaluate": Command("mabs.evaluate:main", "measure a checkpoint against opponents", "rllib"),
    "export": Command("mabs.export:main", "turn a checkpoint into policy.onnx", "rllib"),
    "train-procgen": Command(
        "procgen_rllib.launcher:main", "train an agent on a Procgen game", "rllib,procgen"
    ),
    "rollout": Command(
        "procgen_rllib.rollout:main", "let a trained agent play Procgen", "rllib,procgen"
    ),
    "sagemaker-local": Command(
        "sagemaker_rl.local:main", "rehearse a SageMaker training job here", "sagemaker-local"
    ),
    "cost": Command("sagemaker_rl.costs:main", "reckon what training on rented instances costs"),
    "conformance": Command(
        "battlesnake_gym.conformance:main", "check the rules against recorded games"
    ),
}


def usage() -> str:
    """Return the overview that ``--help`` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROG} COMMAND [options]",
            "",
            "Battlesnake, learned and served: play, write, train and deploy snakes.",
            "",
            "commands:",
            *lines,
            "",
            f"'{PROG} COMMAND --help' explains one of them, '{PROG} --version' what is installed.",
            "First games:",
            f"  {PROG} arena hungry cautious --games 4 --replays replays",
            f"  {PROG} watch replays",
            "",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status (2 for a wrong call)."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name == "--version":
        from battlesnake_gym import about

        sys.stdout.write(about.report() + "\n")
        return 0
    if name not in COMMANDS:
        sys.stderr.write(f"{PROG}: unknown command {name!r}\n\n{usage()}")
        return 2
    try:
        return _run(name, rest)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed again while this process ends
        sys.stderr.write(f"{PROG} {name}: interrupted\n")
        return 130


@contextlib.contextmanager
def _leaving_at_once(name: str) -> Iterator[None]:
    """Within, Ctrl-C ends the process with one line: there is nothing yet that could be lost.

    An exception would do harm: libraries that are being loaded take it for a failure of theirs.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        os.write(2, f"{PROG} {name}: interrupted\n".encode())
        os._exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(name: str, rest: list[str]) -> int:
    command = COMMANDS[name]
    module, function = command.target.split(":")
    try:
        with _leaving_at_once(name):
            run = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if not command.extra:
            raise
        sys.stderr.write(
            f"{PROG} {name}: the package {error.name!r} is missing; "
            f"install it with: pip install '.[{command.extra}]' in a clone of the project, "
            f"or pip install 'battlesnake_gym-VERSION.whl[{command.extra}]' with the wheel's file\n"
        )
        return 2
    return int(run(rest) or 0)
