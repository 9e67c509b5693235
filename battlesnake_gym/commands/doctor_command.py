"""``battlesnake-gym doctor``: what is installed here, what is missing, how to mend it."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from battlesnake_gym.cli import main as cli_main
from battlesnake_gym.cli import versions
from battlesnake_gym.common.command_line import (
    Parser,
    add_json,
    align_columns,
    colorize,
    write_json,
)
from battlesnake_gym.common.extras import install_remedy
from battlesnake_gym.engine import build_check

_COMMAND = "battlesnake-gym doctor"

_GOOD, _MISSING, _BROKEN = "good", "missing", "broken"
"""What a part may be: ``missing`` is what some commands need, ``broken`` what all do."""

_COLOURS = {_GOOD: "green", _MISSING: "yellow", _BROKEN: "red"}

_PROGRAMS = {
    "cc": "compile the engine and the search",
    "git": "keep the sources up to date",
    "chromium": "test the pages in a browser",
}
"""Programs of the system that some work needs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One part: its name, its state, details, and how to mend it ("" if good)."""

    part: str
    state: str
    about: str
    remedy: str = ""


def main(argv: list[str] | None = None) -> int:
    """Print the findings; returns 1 where something is broken, else 0."""
    options = parser().parse_args(argv)
    found = list(findings())
    if options.json:
        write_json([dataclasses.asdict(one) for one in found])
    else:
        rows = align_columns([(one.state, one.part, one.about) for one in found]).splitlines()
        for one, row in zip(found, rows, strict=True):
            state = colorize(one.state, _COLOURS[one.state], sys.stdout)
            sys.stdout.write(state + row[len(one.state) :] + "\n")
            if one.remedy:
                sys.stdout.write(f"{'':9}to mend it: {one.remedy}\n")
    return int(any(one.state == _BROKEN for one in found))


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_COMMAND,
        description="Show what is installed and compiled here, which commands lack what, and how "
        "to mend it.",
        epilog="exit status: 0, or 1 where something is broken that every command needs",
    )
    add_json(parser)
    return parser


def findings() -> Iterator[Finding]:
    """All parts: Python, required packages, what is compiled, extras, programs."""
    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < (3, 11)
    yield Finding("python", _BROKEN if old else _GOOD, version, "install 3.11 or later" * old)
    required = versions.required()
    reinstall = "pip install '.' in a clone, or the wheel's file"
    yield _packages("packages", required.pop("", [versions.NAME]), _BROKEN, reinstall)
    for part, (face, name) in versions.PARTS.items():
        module = versions.compiled_part(face, name)
        if module is None:
            yield Finding(part, _BROKEN, build_check.missing_reason(name), build_check.BUILD_HINT)
        else:
            yield Finding(part, _GOOD, f"compiled, {module.__file__}")
    for extra, packages in sorted(required.items()):
        commands = [name for name, c in cli_main.COMMANDS.items() if extra in c.extra.split(",")]
        remedy = install_remedy(extra)
        yield _packages(f"extra {extra}", packages, _MISSING, remedy, ", ".join(commands))
    for program, use in _PROGRAMS.items():
        path = shutil.which(program)
        remedy = "" if path else f"install it with the system's packages, to {use}"
        yield Finding(program, _GOOD if path else _MISSING, path or f"needed to {use}", remedy)


def _packages(part: str, names: list[str], bad: str, remedy: str, commands: str = "") -> Finding:
    missing = [name for name in names if versions.version(name) is None]
    use = f" (for {commands})" if commands else ""
    if missing:
        return Finding(part, bad, f"without {', '.join(missing)}{use}", remedy)
    return Finding(part, _GOOD, f"{len(names)} packages{use}")
