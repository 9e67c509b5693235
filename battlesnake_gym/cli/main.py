"""Console command ``battlesnake-gym``.

The module of a subcommand is ``<package>/commands/<words>_command.py``. It defines ``main(argv)``,
which returns the exit status, and ``parser()``. It is imported only when the subcommand runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import NamedTuple

from battlesnake_gym.common import standard_streams
from battlesnake_gym.common.command_line import colorize, print_error
from battlesnake_gym.common.extensions import ExtensionError
from battlesnake_gym.common.extras import MissingExtraError, load_module
from battlesnake_gym.common.suggestions import nearest_name

_PROGRAM_NAME = "battlesnake-gym"

_PACKAGES_BY_EXTRA = {
    "": "battlesnake_gym",
    "server": "battlesnake_server",
    "rllib": "battlesnake_rl",
    "sagemaker": "sagemaker_rl",
}
"""Package of a command, by the first extra of the command."""


class _Command(NamedTuple):
    """A subcommand of ``battlesnake-gym``.

    Attributes:
        help: One-line description of the subcommand.
        extra: Extras that must be installed, separated by commas.
        package: Package of the subcommand; "" for the package of the first extra.
    """

    help: str
    extra: str = ""
    package: str = ""


COMMANDS = {
    "play": _Command("play against snakes in the terminal"),
    "arena": _Command("run games between snakes and print a table", "server"),
    "ladder": _Command("measure a snake's Elo against opponents of fixed Elo", "server"),
    "gauntlet": _Command(
        "play one snake against many opponents and print scores with confidence intervals", "server"
    ),
    "league": _Command("run a standing league with seasons and web pages", "server"),
    "snakes": _Command("list the built-in snakes", package="battlesnake_heuristics"),
    "snakes new": _Command("write a small snake to start from", package="battlesnake_heuristics"),
    "snakes check": _Command("check a snake: legal moves, speed, and no regression", "server"),
    "snakes mcp": _Command(
        "serve tools for LLM agents over the Model Context Protocol", "server,mcp"
    ),
    "maps": _Command("list the maps, or draw them as text"),
    "serve": _Command("serve a snake over the Battlesnake API", "server"),
    "pack": _Command("pack a snake into one file", "server"),
    "train": _Command("train a policy with Ray RLlib", "rllib"),
    "evaluate": _Command("measure the Elo or win rate of a policy", "rllib"),
    "runs": _Command("list training runs; serve or write reports", package="battlesnake_server"),
    "runs plot": _Command("plot learning curves", "rllib"),
    "runs export": _Command("export a checkpoint as policy.onnx", "rllib"),
    "game watch": _Command("show replays in the browser", "server"),
    "game analyze": _Command("analyze a replay: win probabilities, best moves, mistakes", "server"),
    "game coach": _Command("find the move that lost a game and test the snake on it", "server"),
    "game eval": _Command("show each evaluation input's contribution in one position", "server"),
    "game puzzles": _Command("find positions with only one good move", "server"),
    "game scenarios": _Command("test a snake on positions with known good moves", "server"),
    "game export": _Command("export a replay as GIF, MP4, PNG, SVG or HTML"),
    "aws deploy": _Command("deploy a bundle to AWS Lambda", "server,aws"),
    "aws undeploy": _Command("delete a deployed snake from AWS", "server,aws"),
    "aws simulate": _Command(
        "simulate a SageMaker training job on this machine", "sagemaker,sagemaker-simulator"
    ),
    "aws experiment": _Command(
        "reproduce the article's five trainings and two graphs",
        "rllib,sagemaker,sagemaker-simulator",
    ),
    "procgen train": _Command("train an agent on a Procgen game", "rllib,procgen"),
    "procgen rollout": _Command("run a trained Procgen agent", "rllib,procgen"),
    "doctor": _Command("show what is installed, what is missing and how to fix it"),
}
"""Subcommands, keyed by name.

The overview shows all commands of a group, such as ``game``, in one line.
"""


_USAGE = f"""usage: {{prog}} COMMAND [options]

Play, write, train and deploy snakes for Battlesnake.

{{commands}}
'{{prog}} COMMAND --help' shows the options of a command.
'{_PROGRAM_NAME} --version' shows the installed versions.
"""

_EXAMPLES = f"""
Examples:
  {_PROGRAM_NAME} play champion
  {_PROGRAM_NAME} arena hungry cautious --games 4 --replays replays
  {_PROGRAM_NAME} game watch replays
"""


def _format_commands(listed: dict[str, str]) -> str:
    """Return a heading and one line per command, from help texts by name."""
    width = max(map(len, listed))
    lines = [
        f"  {colorize(f'{name:<{width}}', 'bold', sys.stdout)}  {text}\n"
        for name, text in listed.items()
    ]
    return "commands:\n" + "".join(lines)


def _command_overview() -> dict[str, str]:
    """Return one line of help for each command and each group, keyed by name."""
    listed: dict[str, str] = {}
    for name, command in COMMANDS.items():
        first, _, second = name.partition(" ")
        if second and first in COMMANDS:
            separator = ", " if "; also: " in listed[first] else "; also: "
            listed[first] += separator + second
        elif second:
            listed[first] = f"{listed[first]}, {second}" if first in listed else second
        else:
            listed[first] = command.help
    return listed


def _commands_in_group(group: str) -> dict[str, str]:
    start = f"{group} "
    return {k.removeprefix(start): v.help for k, v in COMMANDS.items() if k.startswith(start)}


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status (2 for a usage error)."""
    arguments = sys.argv[1:] if argv is None else argv
    wants_help = not {"-h", "--help", "--help-all"}.isdisjoint(arguments)
    standard_streams.prepare_streams("--json" in arguments and not wants_help)
    name, rest = _split_arguments(arguments)
    try:
        try:
            return _run_command(name, rest, wants_help)
        finally:
            standard_streams.flush_stdout()
    except OSError as error:
        # Standard output may be closed or on a full disk.
        return print_error(f"{_PROGRAM_NAME} {name}".strip(), error)


def _run_command(name: str, rest: list[str], wants_help: bool) -> int:
    """Run a subcommand with its arguments, or print the overview."""
    if name not in COMMANDS and (not rest or rest[0] in ("-h", "--help", "help")):
        # The command `help arena` is equivalent to `arena --help`.
        if len(rest) > 1:
            return main([*name.split(), *rest[1:], "--help"])
        commands = _format_commands(_commands_in_group(name) if name else _command_overview())
        usage = _USAGE.format(prog=f"{_PROGRAM_NAME} {name}".strip(), commands=commands)
        sys.stdout.write(usage + ("" if name else _EXAMPLES))
        return 0 if rest else 2
    if name == "" and rest[0] == "--version":
        from battlesnake_gym.cli import versions

        sys.stdout.write(versions.format_report() + "\n")
        return 0
    if name not in COMMANDS:
        known = _commands_in_group(name) or [*_command_overview(), "--version", "--help"]
        close = nearest_name(rest[0], known)
        hint = f"did you mean {close}?" if close else "--help lists the commands"
        return print_error(
            f"{_PROGRAM_NAME} {name}".strip(), f"there is no command {rest[0]!r}; {hint}"
        )
    try:
        with _exit_on_interrupt(name):
            module = load_command(name)
        try:
            return int(module.main(rest) or 0)
        except ModuleNotFoundError as error:
            # Some commands import torch and Ray after they have checked the options.
            from battlesnake_gym.cli import versions

            extra, packages = COMMANDS[name].extra, versions.required_packages()
            if not any(error.name in packages.get(part, ()) for part in extra.split(",")):
                raise
            raise MissingExtraError.of_package(error, extra) from error
        except SystemExit as ended:
            if wants_help and not ended.code and (others := _commands_in_group(name)):
                sys.stdout.write(f"\n{_format_commands(others)}")
            raise
    except (MissingExtraError, ExtensionError) as error:
        if isinstance(error, MissingExtraError) and wants_help:
            sys.stdout.write(f"usage: {_PROGRAM_NAME} {name} [options]\n\n{COMMANDS[name].help}\n\n"
                             f"Install its packages to see its options: {error}\n")  # fmt: skip
            return 0
        return print_error(f"{_PROGRAM_NAME} {name}", error)
    except KeyboardInterrupt:
        # A second Ctrl-C must not interrupt the exit.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write(f"{_PROGRAM_NAME} {name}: interrupted\n")
        return 130


def _split_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """Split arguments into the name of a command or group and the rest.

    The name is "" if the arguments contain neither a command nor a group.
    """
    for count in (2, 1):
        if (name := " ".join(arguments[:count])) in COMMANDS:
            return name, arguments[count:]
    if _commands_in_group(name):
        return name, arguments[1:]
    return "", arguments


def load_command(name: str) -> ModuleType:
    """Import the module of a command.

    Raises:
        MissingExtraError: If packages of the command's extra are not installed.
    """
    command = COMMANDS[name]
    package = command.package or _PACKAGES_BY_EXTRA[command.extra.partition(",")[0]]
    return load_module(f"{package}.commands.{name.replace(' ', '_')}_command", command.extra)


@contextlib.contextmanager
def _exit_on_interrupt(name: str) -> Iterator[None]:
    """Exit the process with a one-line message if Ctrl-C is pressed in the context.

    The context contains only imports, so an interruption loses no work. An exception would be
    harmful, because libraries that are being imported could treat the exception as an import error.
    """

    def exit_now(number: int, frame: FrameType | None) -> None:
        os.write(2, f"{_PROGRAM_NAME} {name}: interrupted\n".encode())
        os._exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, exit_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
