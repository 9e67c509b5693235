"""The console command ``battlesnake-gym``: subcommands, each loaded only when asked for."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import NamedTuple

from battlesnake_gym.command_line import painted, refuse
from battlesnake_gym.nearest import nearest

PROG = "battlesnake-gym"


class Command(NamedTuple):
    """A subcommand: its module has ``main(argv) -> exit status`` and ``parser()``.

    ``help`` is one line on what it does, ``extra`` what must be installed for it.
    """

    module: str
    help: str
    extra: str = ""


COMMANDS = {
    "play": Command("battlesnake_gym.terminal", "play against snakes here in the terminal"),
    "snakes": Command("heuristics.snakes_command", "list the named snakes"),
    "maps": Command("battlesnake_gym.maps_command", "list the maps, with pictures in text"),
    "arena": Command("server.arena.command", "let snakes (names, policies, URLs) play", "server"),
    "league": Command("server.arena.league", "a standing league, around the clock", "server"),
    "ladder": Command("server.arena.ladder", "tell a snake's Elo by snakes of known Elo", "server"),
    "watch": Command("server.web.watch", "show replays in the browser", "server"),
    "analyse": Command("server.replays.analyse", "tell chances, mistakes and best moves", "server"),
    "coach": Command("server.replays.coach", "find the move that lost a game, and why", "server"),
    "puzzles": Command("server.web.puzzles", "positions with one saving move", "server"),
    "serve": Command("server.live.serve", "run a live snake for the Battlesnake API", "server"),
    "pack": Command("server.pack", "a snake of yours in one file: rules, network, looks", "server"),
    "deploy": Command("server.aws.deploy", "put a snake behind a URL on AWS Lambda", "server,aws"),
    "undeploy": Command("server.aws.undeploy", "take it away again", "server,aws"),
    "scenarios": Command("server.arena.scenarios", "test a snake on given situations", "server"),
    "train": Command("mabs.launcher", "train a policy with DQN or APEX on Ray RLlib", "rllib"),
    "plot": Command("mabs.plot", "draw the learning curves of several runs", "rllib"),
    "runs": Command("server.runs.command", "all training runs: a table, a page, a report"),
    "compare": Command("server.runs.compare", "experiments in one table, also from S3"),
    "evaluate": Command("mabs.evaluate", "measure a checkpoint against opponents", "rllib"),
    "export": Command(
        "server.replays.export", "a game as GIF, MP4, PNG, SVG or HTML; a checkpoint as policy.onnx"
    ),
    "train-procgen": Command(
        "procgen_rllib.command", "train an agent on a Procgen game", "rllib,procgen"
    ),
    "rollout": Command(
        "procgen_rllib.rollout", "let a trained agent play Procgen", "rllib,procgen"
    ),
    "sagemaker-local": Command(
        "sagemaker_rl.rehearsal.local", "rehearse a SageMaker training job here", "sagemaker-local"
    ),
    "cost": Command("sagemaker_rl.launch.costs", "reckon what training on rented instances costs"),
    "conformance": Command("battlesnake_gym.conformance", "check the rules against recorded games"),
    "doctor": Command("battlesnake_gym.doctor", "what is installed, what is missing, how to mend"),
}


class MissingExtraError(Exception):
    """A command needs packages that are not installed; the message says how to get them."""


def usage() -> str:
    """Return the overview that ``--help`` prints."""
    width = max(map(len, COMMANDS))
    bold = {name: painted(f"{name:<{width}}", "bold", sys.stdout) for name in COMMANDS}
    lines = [f"  {bold[name]}  {command.help}" for name, command in COMMANDS.items()]
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
            f"  {PROG} play champion",
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
        close = nearest(name, [*COMMANDS, "--version", "--help"])
        hint = f"did you mean {close}?" if close else "--help lists the commands"
        return refuse(PROG, f"there is no command {name!r}; {hint}")
    try:
        with _leaving_at_once(name):
            module = load(name)
        return int(module.main(rest) or 0)
    except MissingExtraError as error:
        return refuse(f"{PROG} {name}", error)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed again while this process ends
        sys.stderr.write(f"{PROG} {name}: interrupted\n")
        return 130


def load(name: str) -> ModuleType:
    """The module of a command.

    Raises `MissingExtraError` where packages of its extra are not installed.
    """
    command = COMMANDS[name]
    return load_module(command.module, command.extra)


def load_module(module: str, extra: str) -> ModuleType:
    """A module that needs the packages of ``extra`` ("" for none); raises as `load`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not extra:
            raise
        raise MissingExtraError(
            f"the package {error.name!r} is missing; {install_remedy(extra)}"
        ) from error


def install_remedy(extra: str) -> str:
    """How to install what belongs to ``extra``."""
    return f"install it with pip install '.[{extra}]' in a clone, or 'WHEEL[{extra}]' from a wheel"


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
