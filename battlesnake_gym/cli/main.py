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

from battlesnake_gym.common.command_line import colorize, print_error
from battlesnake_gym.common.extensions import ExtensionError
from battlesnake_gym.common.extras import MissingExtraError, load_module
from battlesnake_gym.common.suggestions import nearest

_PROG = "battlesnake-gym"


class Command(NamedTuple):
    """A subcommand: its module has ``main(argv) -> exit status`` and ``parser()``.

    ``help`` is one line on what it does, ``extra`` what must be installed for it.
    """

    module: str
    help: str
    extra: str = ""


COMMANDS = {
    "play": Command(
        "battlesnake_gym.commands.play_command", "play against snakes here in the terminal"
    ),
    "arena": Command(
        "battlesnake_server.commands.arena_command",
        "let snakes (names, files, policies, URLs) play",
        "server",
    ),
    "ladder": Command(
        "battlesnake_server.commands.ladder_command",
        "measure a snake's Elo against snakes of known Elo",
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
    "snakes": Command("battlesnake_heuristics.commands.snakes_command", "list the named snakes"),
    "snakes check": Command(
        "battlesnake_server.commands.snakes_check_command",
        "is a snake fit to be submitted, and no weaker than before?",
        "server",
    ),
    "snakes mcp": Command(
        "battlesnake_server.commands.snakes_mcp_command",
        "tools for agents that write snakes",
        "server,mcp",
    ),
    "maps": Command(
        "battlesnake_gym.commands.maps_command", "list the maps, with pictures in text"
    ),
    "serve": Command(
        "battlesnake_server.commands.serve_command",
        "run a live snake for the Battlesnake API",
        "server",
    ),
    "pack": Command(
        "battlesnake_server.commands.pack_command",
        "your snake in one file: rules, network, looks",
        "server",
    ),
    "train": Command(
        "battlesnake_rl.commands.train_command",
        "train a policy on Ray RLlib, by games or a search",
        "rllib",
    ),
    "evaluate": Command(
        "battlesnake_rl.commands.evaluate_command",
        "measure a checkpoint against opponents",
        "rllib",
    ),
    "runs": Command(
        "battlesnake_server.commands.runs_command", "all training runs: a table, a page, a report"
    ),
    "runs plot": Command(
        "battlesnake_rl.commands.runs_plot_command",
        "draw the learning curves of several runs",
        "rllib",
    ),
    "runs export": Command(
        "battlesnake_rl.commands.runs_export_command",
        "a run or a checkpoint as policy.onnx",
        "rllib",
    ),
    "game watch": Command(
        "battlesnake_server.commands.game_watch_command", "show replays in the browser", "server"
    ),
    "game analyse": Command(
        "battlesnake_server.commands.game_analyze_command",
        "show chances, mistakes and best moves",
        "server",
    ),
    "game coach": Command(
        "battlesnake_server.commands.game_coach_command",
        "find the move that lost a game, and why",
        "server",
    ),
    "game evaluation": Command(
        "battlesnake_server.commands.game_eval_command",
        "what each input of the learned evaluation is worth in a position",
        "server",
    ),
    "game puzzles": Command(
        "battlesnake_server.commands.game_puzzles_command",
        "positions with one saving move",
        "server",
    ),
    "game scenarios": Command(
        "battlesnake_server.commands.game_scenarios_command",
        "test a snake on given situations",
        "server",
    ),
    "game export": Command(
        "battlesnake_gym.commands.game_export_command", "a game as GIF, MP4, PNG, SVG or HTML"
    ),
    "aws deploy": Command(
        "battlesnake_server.commands.aws_deploy_command",
        "put a snake behind a URL on AWS Lambda",
        "server,aws",
    ),
    "aws undeploy": Command(
        "battlesnake_server.commands.aws_undeploy_command", "remove it from AWS", "server,aws"
    ),
    "aws rehearse": Command(
        "sagemaker_rl.commands.aws_simulate_command",
        "rehearse a SageMaker training job here",
        "sagemaker-local",
    ),
    "procgen train": Command(
        "battlesnake_rl.commands.procgen_train_command",
        "train an agent on a Procgen game",
        "rllib,procgen",
    ),
    "procgen rollout": Command(
        "battlesnake_rl.commands.procgen_rollout_command",
        "let a trained agent play Procgen",
        "rllib,procgen",
    ),
    "doctor": Command(
        "battlesnake_gym.commands.doctor_command",
        "what is installed, what is missing, how to fix it",
    ),
}
"""A name of two words is of a group, which the first screen shows in one line."""

RENAMED = {name.split()[-1]: name for name in COMMANDS if name.startswith(("game", "aws"))} | {
    "plot": "runs plot",
    "sagemaker-local": "aws rehearse",
    "train-procgen": "procgen train",
    "rollout": "procgen rollout",
}
"""What commands were called before; these names go with the next release."""

_PICTURES = (".gif", ".mp4", ".png", ".svg", ".html")
"""How words of ``export`` ended where it was of a game, and not of a checkpoint."""


def usage(group: str = "") -> str:
    """Return the overview that ``--help`` prints: of all commands, or of those in a group."""
    listed = _in_group(group) if group else _on_first_screen()
    width = max(map(len, listed))
    lines = [
        f"  {colorize(f'{one:<{width}}', 'bold', sys.stdout)}  {listed[one]}" for one in listed
    ]
    prog = f"{_PROG} {group}".strip()
    first_games = [
        "First games:",
        f"  {_PROG} play champion",
        f"  {_PROG} arena hungry cautious --games 4 --replays replays",
        f"  {_PROG} game watch replays",
    ]
    return "\n".join(
        [
            f"usage: {prog} COMMAND [options]",
            "",
            "Battlesnake, learned and served: play, write, train and deploy snakes.",
            "",
            "commands:",
            *lines,
            "",
            f"'{prog} COMMAND --help' explains one of them, '{_PROG} --version' what is installed.",
            *([] if group else first_games),
            "",
        ]
    )


def _on_first_screen() -> dict[str, str]:
    """The commands and groups, with what each does or has in it."""
    listed: dict[str, str] = {}
    for name, command in COMMANDS.items():
        first, _, second = name.partition(" ")
        there = listed.get(first)
        listed[first] = command.help if not second else f"{there}, {second}" if there else second
    return listed


def _in_group(group: str) -> dict[str, str]:
    start = f"{group} "
    return {k.removeprefix(start): v.help for k, v in COMMANDS.items() if k.startswith(start)}


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit status (2 for a wrong call)."""
    arguments = sys.argv[1:] if argv is None else argv
    name, rest = _named(arguments)
    if name not in COMMANDS and (not rest or rest[0] in ("-h", "--help")):
        sys.stdout.write(usage(name))
        return 0 if rest else 2
    if name == "" and rest[0] == "--version":
        from battlesnake_gym.cli import versions

        sys.stdout.write(versions.report() + "\n")
        return 0
    if name not in COMMANDS:
        known = _in_group(name) or [*_on_first_screen(), *RENAMED, "--version", "--help"]
        close = nearest(rest[0], known)
        close = RENAMED.get(close, close)
        hint = f"did you mean {close}?" if close else "--help lists the commands"
        return print_error(f"{_PROG} {name}".strip(), f"there is no command {rest[0]!r}; {hint}")
    try:
        with _leaving_at_once(name):
            module = load(name)
        return int(module.main(rest) or 0)
    except (MissingExtraError, ExtensionError) as error:
        if isinstance(error, MissingExtraError) and {"-h", "--help", "--help-all"} & {*rest}:
            sys.stdout.write(f"usage: {_PROG} {name} [options]\n\n{COMMANDS[name].help}\n\n"
                             f"Its options are shown once it can run: {error}\n")  # fmt: skip
            return 0
        return print_error(f"{_PROG} {name}", error)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pressed again while this process ends
        sys.stderr.write(f"{_PROG} {name}: interrupted\n")
        return 130


def _named(arguments: list[str]) -> tuple[str, list[str]]:
    """The command, or the group, or "", that the first words name; and the other words.

    An old name is today's, which is said on stderr.
    """
    for count in (2, 1):
        if (name := " ".join(arguments[:count])) in COMMANDS:
            return name, arguments[count:]
    if name in RENAMED:
        games = name != "export" or any(word.endswith(_PICTURES) for word in arguments)
        today = RENAMED[name] if games else "runs export"
        sys.stderr.write(f"{_PROG}: {name} is called {today} now; "
                         "the old name goes with the next release\n")  # fmt: skip
        return today, arguments[1:]
    if _in_group(name):
        return name, arguments[1:]
    return "", arguments


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
        os.write(2, f"{_PROG} {name}: interrupted\n".encode())
        os._exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
