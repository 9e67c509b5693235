"""The console command ``battlesnake-gym``: subcommands, each loaded only when asked for."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import NamedTuple

from battlesnake_gym.common.command_line import painted, refuse
from battlesnake_gym.common.extras import MissingExtraError, load_module
from battlesnake_gym.common.nearest import nearest
from battlesnake_gym.common.own_files import OwnFileError

PROG = "battlesnake-gym"


class Command(NamedTuple):
    """A subcommand: its module has ``main(argv) -> exit status`` and ``parser()``.

    ``help`` is one line on what it does, ``extra`` what must be installed for it.
    """

    module: str
    help: str
    extra: str = ""


COMMANDS = {
    "play": Command("battlesnake_gym.cli.terminal", "play against snakes here in the terminal"),
    "snakes": Command("battlesnake_heuristics.snakes_command", "list the named snakes"),
    "maps": Command("battlesnake_gym.cli.maps_command", "list the maps, with pictures in text"),
    "arena": Command(
        "battlesnake_server.commands.arena_command",
        "let snakes (names, policies, URLs) play",
        "server",
    ),
    "gauntlet": Command(
        "battlesnake_server.commands.gauntlet_command",
        "a snake against rivals (URLs, programs), as a table with intervals",
        "server",
    ),
    "league": Command(
        "battlesnake_server.commands.league_command",
        "a standing league, around the clock",
        "server",
    ),
    "ladder": Command(
        "battlesnake_server.commands.ladder_command",
        "measure a snake's Elo against snakes of known Elo",
        "server",
    ),
    "watch": Command("battlesnake_server.web.watch", "show replays in the browser", "server"),
    "analyse": Command(
        "battlesnake_server.commands.analyse", "show chances, mistakes and best moves", "server"
    ),
    "coach": Command(
        "battlesnake_server.commands.coach", "find the move that lost a game, and why", "server"
    ),
    "puzzles": Command(
        "battlesnake_server.web.puzzles", "positions with one saving move", "server"
    ),
    "serve": Command(
        "battlesnake_server.commands.serve", "run a live snake for the Battlesnake API", "server"
    ),
    "pack": Command(
        "battlesnake_server.commands.pack",
        "your snake in one file: rules, network, looks",
        "server",
    ),
    "deploy": Command(
        "battlesnake_server.commands.deploy", "put a snake behind a URL on AWS Lambda", "server,aws"
    ),
    "undeploy": Command("battlesnake_server.commands.undeploy", "remove it from AWS", "server,aws"),
    "scenarios": Command(
        "battlesnake_server.commands.scenarios_command",
        "test a snake on given situations",
        "server",
    ),
    "train": Command(
        "battlesnake_rl.mabs.train", "train a policy with DQN or APEX on Ray RLlib", "rllib"
    ),
    "plot": Command(
        "battlesnake_rl.mabs.plot", "draw the learning curves of several runs", "rllib"
    ),
    "runs": Command(
        "battlesnake_server.commands.runs_command", "all training runs: a table, a page, a report"
    ),
    "evaluate": Command(
        "battlesnake_rl.mabs.evaluate", "measure a checkpoint against opponents", "rllib"
    ),
    "export": Command(
        "battlesnake_gym.cli.export_command",
        "a game as GIF, MP4, PNG, SVG or HTML; a checkpoint as policy.onnx",
    ),
    "train-procgen": Command(
        "battlesnake_rl.procgen.train_procgen",
        "train an agent on a Procgen game",
        "rllib,procgen",
    ),
    "rollout": Command(
        "battlesnake_rl.procgen.rollout", "let a trained agent play Procgen", "rllib,procgen"
    ),
    "sagemaker-local": Command(
        "battlesnake_rl.launcher.rehearsal.local",
        "rehearse a SageMaker training job here",
        "sagemaker-local",
    ),
    "conformance": Command(
        "battlesnake_gym.cli.conformance", "check the rules against recorded games"
    ),
    "doctor": Command(
        "battlesnake_gym.cli.doctor", "what is installed, what is missing, how to fix it"
    ),
}


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
        from battlesnake_gym.cli import about

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
    except (MissingExtraError, OwnFileError) as error:
        if isinstance(error, MissingExtraError) and {"-h", "--help"} & {*rest}:
            sys.stdout.write(f"usage: {PROG} {name} [options]\n\n{COMMANDS[name].help}\n\n"
                             f"Its options are shown once it can run: {error}\n")  # fmt: skip
            return 0
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


@contextlib.contextmanager
def _leaving_at_once(name: str) -> Iterator[None]:
    """Inside the block, Ctrl-C ends the process with one line: nothing can be lost yet.

    An exception would do harm: libraries being loaded would take it for an error of their own.
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
