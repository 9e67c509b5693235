"""``battlesnake-gym pack``: a snake in one file that every server, arena and host here plays."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from battlesnake_gym import policy_file, snakes
from battlesnake_gym.common import extensions
from battlesnake_gym.common.command_line import Parser, positive, print_error
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_heuristics.rule_based import filters, policy_rules
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_server import bundle, codeclash
from battlesnake_server.bundle import (
    CUSTOMIZATION_PATTERNS,
    EVALUATION_FILE,
    POLICY_FILE,
    RULES_FILE,
    Bundle,
)
from battlesnake_server.strategy_loader import (
    DEFAULT_POLICY_NAME,
    DEFAULT_POLICY_PATH,
    SAFE_FILTER_NAMES,
)

_PROG = "battlesnake-gym pack"

_TRIAL = """
import sys
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_server.bundle import Bundle
try:
    strategy = Bundle.open(sys.argv[1]).factory()(1)
    board = Board.new(11, 11, 2, game=Game(seed=1))
    strategy(Board.from_api(board.to_api("snake_0")), 0.05)
except ValueError as error:
    sys.exit(str(error))
"""
"""Builds the snake and asks it for one move, on a board that any network may refuse."""


def main(argv: list[str] | None = None) -> int:
    """Write the bundle and say what is in it; the exit status is 2 where something is refused."""
    options = parser().parse_args(argv)
    try:
        facts, files = _contents(options)
        if options.arena:
            folder = options.output or Path(options.arena)
            seconds = codeclash.write(folder, facts, files)
            sys.stdout.write(f"{folder}: `python main.py` moves after {seconds:.1f} s\n")
            return 0
        output = options.output or Path("snake.zip")
        data = bundle.write(facts, files)
        write_atomically(output, lambda part: _write_tried(part, data))
    except (ValueError, OSError) as error:
        return print_error(_PROG, error)
    sys.stdout.write(describe(Bundle.open(output), len(data)))
    return 0


def describe(packed: Bundle, size: int) -> str:
    """What is in a bundle, in a few lines."""
    facts = packed.metadata
    plays = facts["snake"] or ("the policy" if POLICY_FILE in packed.files else "the evaluation")
    if facts["filters"]:
        plays += f" under {' '.join(facts['filters'])}"
    if facts["positions"]:
        plays += f", {facts['positions']} positions a move"
    lines = [f"{packed.path}: {size:,} bytes; plays {plays}"]
    lines += [f"  {name}  sha256 {facts['files'][name][:16]}..." for name in sorted(packed.files)]
    if packed.customization:
        lines.append(
            "  " + ", ".join(f"{name} {value}" for name, value in packed.customization.items())
        )
    return "\n".join(lines) + "\n"


def _contents(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What the bundle says of the snake, and its files."""
    looks = {
        name: getattr(options, name)
        for name in CUSTOMIZATION_PATTERNS
        if getattr(options, name) is not None
    }
    bundle.check_looks(looks)
    facts: dict[str, Any] = {"positions": options.positions, "looks": looks, "filters": []}
    files: dict[str, bytes] = {}
    own_snakes, own_filters, speak = _read_rules(options.rules, files)
    if options.policy:
        facts["filters"] = _filters(options, own_filters)
        _refuse_unused_rules(options, speak or bool(own_filters))
        onnx_path = (
            DEFAULT_POLICY_PATH if options.policy == DEFAULT_POLICY_NAME else Path(options.policy)
        )
        text = onnx_path.with_suffix(".json").read_bytes() if onnx_path.exists() else b""
        files[POLICY_FILE] = policy_file.read(onnx_path)[0]
        files[Path(POLICY_FILE).with_suffix(".json").name] = text
    elif options.heuristics is not None:
        raise ValueError("--heuristics overrules a policy; give --policy too")
    if options.evaluation:
        if options.rules:
            raise ValueError(
                "--evaluation plays the search, which no rules overrule; leave one out"
            )
        Evaluation.load(options.evaluation)
        files[EVALUATION_FILE] = Path(options.evaluation).read_bytes()
    learned = options.policy or options.evaluation
    facts["snake"] = None if learned else _snake(options, own_snakes)
    if options.positions and (options.policy or not _searches(facts["snake"], own_snakes)):
        raise ValueError(
            "--positions bounds a search, and this snake does not search; leave it out"
        )
    return facts, files


def _read_rules(
    path: Path | None, files: dict[str, bytes]
) -> tuple[dict[str, snakes.Factory], list[str], bool]:
    """Put the rules among the files.

    Returns the snakes and the names of the filters that they register, and whether they have a list
    of rules that speak over a policy.
    """
    if path is None:
        return {}, [], False
    files[RULES_FILE] = path.read_bytes()
    with (
        snakes.capture_registrations() as own_snakes,
        bundle.capture_filter_registrations() as own_filters,
    ):
        module = bundle.run_rules(files[RULES_FILE], str(path))
    speak = hasattr(module, policy_rules.RULES_VARIABLE)
    if speak:
        policy_rules.validate_rules(module.rules, path)
    return own_snakes, list(own_filters), speak


def _refuse_unused_rules(options: argparse.Namespace, used: bool) -> None:
    if options.rules and not used:
        raise ValueError(
            f"{options.rules.name} has no list called rules and registers no filter, "
            "so a policy hears nothing of it; see docs/own.md, or leave it out"
        )


def _filters(options: argparse.Namespace, own: list[str]) -> list[str]:
    """Those that were named; else a careful snake's, where any are wanted, and the rules' own."""
    if options.heuristics:
        for name in options.heuristics:
            if name not in (*filters.FILTERS, *own):
                raise ValueError(unknown_name_message("filter", name, [*filters.FILTERS, *own]))
        return list(options.heuristics)
    careful = () if options.heuristics is None else SAFE_FILTER_NAMES
    return [*careful, *(name for name in own if name not in careful)]


def _snake(options: argparse.Namespace, own: dict[str, snakes.Factory]) -> str:
    """The name of the snake that plays."""
    if options.snake:
        if options.snake not in own:
            if options.rules:
                listed = ", ".join(own) or "none"
                raise ValueError(
                    f"{options.rules.name} registers no snake {options.snake!r}, but {listed}"
                )
            snakes.make(options.snake)
        return str(options.snake)
    if not options.rules:
        raise ValueError("name what plays: a file of rules, --snake, --policy or --evaluation")
    if len(own) != 1:
        listed = ", ".join(own) or "none; see snakes.register"
        raise ValueError(
            f"{options.rules.name} registers these snakes: {listed}; choose with --snake"
        )
    return next(iter(own))


def _searches(name: str | None, own: dict[str, snakes.Factory]) -> bool:
    if name is None:
        return True  # an evaluation
    build = own.get(name) or snakes.factory(name)
    return isinstance(build(1), snakes.NodeLimitedStrategy)


def _write_tried(part: Path, data: bytes) -> None:
    """Write the bundle, and see that it plays where nothing else of its author's is.

    Raises `BundleError` with what a fresh process in an empty folder said.
    """
    part.write_bytes(data)
    with tempfile.TemporaryDirectory() as empty:
        path = Path(empty) / "snake.zip"
        path.write_bytes(data)
        # -P: what lies in the folder is not importable.
        trial = [sys.executable, "-P", "-c", _TRIAL, str(path)]
        alone = {
            key: value for key, value in os.environ.items() if key != extensions.EXTENSIONS_VARIABLE
        }
        done = subprocess.run(
            trial, cwd=empty, env=alone, capture_output=True, text=True, check=False
        )
    said = done.stderr.strip().splitlines()
    if done.returncode and not (said and said[-1].startswith("the policy plays boards of")):
        why = said[-1].replace(f"{path}/", "") if said else f"exit status {done.returncode}"
        raise bundle.BundleError(f"the snake does not play by itself: {why}")


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_PROG,
        description="Pack a snake into one file: rules of your own, a network or an evaluation, "
        "and its looks. Wherever a snake is named, the file's name plays it: serve, arena, "
        "ladder, scenarios, and deploy.",
        epilog="Example: battlesnake-gym pack my_snake.py --color '#3366cc' --head evil "
        "-o snake.zip",
    )
    add = parser.add_argument
    add("rules", nargs="?", type=Path, metavar="RULES",
        help="a Python file that registers a snake, or filters for --policy")  # fmt: skip
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--snake", metavar="NAME", help="which one plays: of the rules, or a named "
        "snake; `battlesnake-gym snakes`")  # fmt: skip
    who.add_argument("--policy", metavar="FILE", help="a policy.onnx with policy.json beside it, "
        "or `shipped`")  # fmt: skip
    who.add_argument("--evaluation", metavar="FILE", help="a learned evaluation, for the search")
    add("--heuristics", nargs="*", metavar="FILTER", help="move filters that overrule the policy; "
        "none named: those of a careful snake, and the rules' own")  # fmt: skip
    add("--positions", type=positive, metavar="N", help="positions a move that it searches, "
        "instead of the time that there is: the same moves on every machine")  # fmt: skip
    add("--color", help="#rrggbb")
    add("--head", help="name of the head")
    add("--tail", help="name of the tail")
    add("--author", help="your name on arena.battlesnake.com")
    add("--for", dest="arena", choices=("codeclash",), help="write a folder that CodeClash's arena "
        "starts, with Python 3.10 and offline, instead of a file")  # fmt: skip
    add("-o", "--output", type=Path, help="the file to write (default: snake.zip), or the folder "
        "(default: codeclash)")  # fmt: skip
    return parser
