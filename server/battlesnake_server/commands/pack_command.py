"""``battlesnake-gym pack``: pack a snake into one file.

Every command that accepts the name of a snake also accepts the file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from battlesnake_gym import api_snakes, policy_file, snakes
from battlesnake_gym.common import extensions
from battlesnake_gym.common.command_line import Parser, output_file, positive, reports_errors
from battlesnake_gym.common.files import check_replaceable, write_atomically
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.draw.customization import HEADS, TAILS
from battlesnake_gym.snake_spec import BUILTIN_POLICY_NAME, SnakeSpec
from battlesnake_heuristics.rule_based import filters, policy_rules
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_server import bundle
from battlesnake_server.bundle import (
    CUSTOMIZATION_FORMATS,
    EVALUATION_FILE,
    POLICY_FILE,
    RULES_FILE,
    Bundle,
)
from battlesnake_server.strategy_loader import DEFAULT_POLICY_PATH, SAFE_FILTER_NAMES

_TRIAL_PROGRAM = """
import sys
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_server.bundle import Bundle
from battlesnake_gym import snakes
from battlesnake_server.strategy_loader import example_board_size
try:
    with snakes.named_errors("the snake", (ValueError, OSError)):
        factory = Bundle.load(sys.argv[1]).factory()
        board = Board.new(*example_board_size(factory), 2, game=Game(seed=1))
        factory(1)(Board.from_api(board.to_api("snake_0")), 0.05)
except (ValueError, OSError) as error:
    sys.exit(str(error))
"""
"""Python program that builds the snake and chooses one move."""


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Write the bundle and describe the contents.

    The exit status is 2 if an input is rejected.
    """
    options = parser().parse_args(argv)
    if options.output.name == bundle.BUNDLE_METADATA_FILE:
        raise ValueError(
            f"--output: {options.output} is the name of an unpacked bundle; use snake.zip"
        )
    check_replaceable(options.output, Bundle.load)
    metadata, files = _build_contents(options)
    data = bundle.to_bytes(metadata, files)
    write_atomically(options.output, lambda part: _write_and_test(part, data))
    sys.stdout.write(_describe(Bundle.load(options.output), len(data)))
    return 0


def _describe(packed: Bundle, size: int) -> str:
    """Format the description of a bundle: content, file hashes and customization."""
    metadata = packed.metadata
    plays = metadata["snake"] or ("the policy" if POLICY_FILE in packed.files else "the evaluation")
    if metadata["filters"]:
        plays += f" with filters {' '.join(metadata['filters'])}"
    if metadata["nodes"]:
        plays += f", {metadata['nodes']} nodes per move"
    lines = [f"{packed.path}: {size:,} bytes; plays {plays}"]
    lines += [
        f"  {name}  sha256 {metadata['files'][name][:16]}..." for name in sorted(packed.files)
    ]
    if packed.customization:
        shapes = {"head": HEADS, "tail": TAILS}
        values = [
            f"{key} {value}" + ("" if value in shapes.get(key, value) else " (drawn as default)")
            for key, value in packed.customization.items()
        ]
        lines.append("  " + ", ".join(values))
    return "\n".join(lines) + "\n"


def _build_contents(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Build the metadata and the files of a bundle from the options."""
    customization = {
        name: getattr(options, name)
        for name in CUSTOMIZATION_FORMATS
        if getattr(options, name) is not None
    }
    metadata: dict[str, Any] = {
        "nodes": options.nodes,
        "customization": customization,
        "filters": [],
    }
    files: dict[str, bytes] = {}
    if (given := options.extension) and not given.exists():
        remedy = f"for a built-in snake, give --snake {given}"
        if given.suffix == ".py":
            remedy = "`battlesnake-gym snakes new` writes a snake"
        raise ValueError(f"{given} does not exist; {remedy}")
    if given and given.suffix != ".py":
        raise ValueError(f"EXTENSION must be a Python file, got {given}; omit it")
    bundle.check_customization(customization)
    own_snakes, own_filters, has_rules = _read_extension(options, files)
    if options.policy:
        metadata["filters"] = _select_filters(options, own_filters)
        if given and not has_rules and {*own_filters}.isdisjoint(metadata["filters"]):
            raise ValueError(
                f"{given.name} defines neither `rules` nor a selected filter, so it has no effect "
                "on a policy; see docs/how-to/add-rules-to-a-policy.md, or omit it"
            )
        spec = SnakeSpec(options.policy)
        if spec.is_uri:
            raise ValueError(f"--policy must be a path on this machine, got {options.policy}")
        policy = snakes.policy_path(spec) or options.policy
        onnx_path = DEFAULT_POLICY_PATH if policy == BUILTIN_POLICY_NAME else Path(policy)
        files[POLICY_FILE] = policy_file.read(onnx_path)[0]
        json_name = Path(POLICY_FILE).with_suffix(".json").name
        files[json_name] = onnx_path.with_suffix(".json").read_bytes()
    elif options.filters is not None:
        raise ValueError("--filters applies to a policy; give --policy too")
    if options.evaluation:
        if options.extension:
            raise ValueError(
                "--evaluation applies to the built-in search, which does not use extensions; "
                "omit --evaluation or the extension"
            )
        Evaluation.load(options.evaluation)
        files[EVALUATION_FILE] = Path(options.evaluation).read_bytes()
    learned = options.policy or options.evaluation
    metadata["snake"] = None if learned else _select_snake(options, own_snakes)
    own_customization = getattr(own_snakes.get(metadata["snake"]), "customization", {})
    metadata["customization"] = own_customization | customization
    try:
        bundle.check_customization(metadata["customization"])
    except ValueError as error:
        raise ValueError(f"info() in {given}: {error}") from error
    if options.nodes and (options.policy or not _is_search(metadata["snake"], own_snakes)):
        raise ValueError("--nodes limits a search, and this snake does not search; omit --nodes")
    return metadata, files


def _read_extension(
    options: argparse.Namespace, files: dict[str, bytes]
) -> tuple[dict[str, snakes.StrategyFactory], list[str], bool]:
    """Execute the extension file, and add the file to ``files``.

    Returns:
        The registered snakes, or the snake that the file defines (`api_snakes`), by name; the names
        of the registered filters; and whether the file defines policy rules.
    """
    path = options.extension
    if path is None:
        return {}, [], False
    files[RULES_FILE] = path.read_bytes()
    with (
        snakes.capture_registrations() as own_snakes,
        bundle.capture_filter_registrations() as own_filters,
    ):
        module = bundle.run_extension_code(files[RULES_FILE], str(path))
    with snakes.named_errors(path.name, (ValueError, OSError)):
        is_snake = not (own_snakes or options.policy)
        if is_snake and (factory := api_snakes.find_factory(module)):
            own_snakes[path.stem] = factory
    has_rules = hasattr(module, policy_rules.RULES_VARIABLE)
    if has_rules:
        policy_rules.validate_rules(module.rules, path)
    return own_snakes, list(own_filters), has_rules


def _select_filters(options: argparse.Namespace, registered: list[str]) -> list[str]:
    """Return the names of the policy's move filters in the bundle.

    If ``--filters`` lists names, the result contains only these filters. If ``--filters`` lists no
    names, the result contains the safe filters and the filters of the extension.
    """
    if options.filters:
        known = [*filters.FILTERS, *registered]
        for name in options.filters:
            if name not in known:
                raise ValueError(unknown_name_message("filter", name, known))
        return list(options.filters)
    safe = () if options.filters is None else SAFE_FILTER_NAMES
    return [*safe, *(name for name in registered if name not in safe)]


def _select_snake(
    options: argparse.Namespace, registered: dict[str, snakes.StrategyFactory]
) -> str:
    """Return the name of the snake that plays."""
    if not (options.extension or options.snake):
        raise ValueError("nothing to pack; give EXTENSION, --snake, --policy or --evaluation")
    if options.snake and (registered or not options.extension):
        if options.snake not in registered:
            if options.extension:
                raise ValueError(
                    f"{options.extension.name} registers no snake {options.snake!r}, only "
                    f"{', '.join(registered)}"
                )
            snakes.make(options.snake)
            if snakes.is_path(SnakeSpec.parse(options.snake)):
                raise ValueError(
                    f"--snake must be a registered name, got {options.snake!r}; give a Python file "
                    "as EXTENSION, or a policy as --policy"
                )
        return str(options.snake)
    if len(registered) != 1:
        remedy = "choose with --snake"
        if not registered:
            remedy = "define a function move, or call battlesnake_gym.snakes.register"
        raise ValueError(
            f"{options.extension.name} registers {' and '.join(registered) or 'no snake'}; {remedy}"
        )
    return next(iter(registered))


def _is_search(name: str | None, registered: dict[str, snakes.StrategyFactory]) -> bool:
    """Return whether the snake searches, so that a node limit has an effect."""
    if name is None:
        return True  # An evaluation requires the search.
    build = registered.get(name) or snakes.factory(name)
    with snakes.named_errors(name, (ValueError, OSError)):
        return isinstance(build(1), snakes.NodeLimitedStrategy)


def _write_and_test(part: Path, data: bytes) -> None:
    """Write the bundle and test that the snake plays without the author's other files.

    Raises:
        ValueError: If the snake fails in a new process and an empty directory.
    """
    part.write_bytes(data)
    with tempfile.TemporaryDirectory() as empty:
        path = Path(empty) / "snake.zip"
        path.write_bytes(data)
        # The option -P prevents imports from the working directory.
        trial = [sys.executable, "-P", "-c", _TRIAL_PROGRAM, str(path)]
        alone = extensions.portable_environment()
        done = subprocess.run(
            trial, cwd=empty, env=alone, capture_output=True, text=True, check=False
        )
    stderr = done.stderr.strip().splitlines()
    if done.returncode:
        reason = stderr[-1].replace(f"{path}/", "") if stderr else f"exit status {done.returncode}"
        raise ValueError(f"in a process without your other files: {reason}")


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym pack",
        description="Pack a snake into one file: extension code, a policy or an evaluation, and "
        "its customization. The file can be used wherever a snake is named: serve, arena, ladder, "
        "scenarios, aws deploy.",
        epilog="Example: battlesnake-gym pack my_snake.py --color '#3366cc' --head evil "
        "-o snake.zip",
    )
    add = parser.add_argument
    add("extension", nargs="?", type=Path, metavar="EXTENSION",
        help="Python file with a snake, or with rules or filters for --policy")  # fmt: skip
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--snake", metavar="NAME", help="snake to pack: a snake registered "
        "in EXTENSION, or a built-in snake")  # fmt: skip
    source.add_argument("--policy", metavar="FILE", help="policy.onnx with policy.json in the "
        'same directory, or "shipped"')  # fmt: skip
    source.add_argument("--evaluation", metavar="FILE", help="learned evaluation for the search")
    add("--filters", nargs="*", metavar="FILTER", help="move filters applied to the policy; "
        "without names: the safe filters, and the filters in EXTENSION")  # fmt: skip
    add("--nodes", type=positive, metavar="N", help="nodes per move instead of a time limit; makes "
        "moves reproducible on any machine")  # fmt: skip
    add("--color", help="snake color, #rrggbb")
    add("--head", help="snake head")
    add("--tail", help="snake tail")
    add("--author", help="your user name on arena.battlesnake.com")
    add("-o", "--output", type=output_file, default=Path("snake.zip"),
        help="output file (default: %(default)s)")  # fmt: skip
    return parser
