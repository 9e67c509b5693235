"""``battlesnake-gym doctor``: list components, problems and remedies."""

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
    add_json_option,
    align_columns,
    colorize,
    plural,
    print_json,
)
from battlesnake_gym.common.extras import install_remedy
from battlesnake_gym.engine import build_check

_COMMAND = "battlesnake-gym doctor"

_GOOD, _SLOW, _MISSING, _BROKEN = "good", "slow", "missing", "broken"
"""Possible states of a component.

Some commands need a missing component; all commands need a broken component.
"""

_STATE_COLORS = {_GOOD: "green", _SLOW: "yellow", _MISSING: "yellow", _BROKEN: "red"}

_PROGRAM_PURPOSES = {
    "cc": "compile the engine and the search",
    "git": "update the sources",
    "chromium": "test the web pages in a browser",
}
"""System programs and their purposes."""

_CONSEQUENCES = {"search": "; without it, serve plays lookahead instead of champion"}
"""Consequences of missing compiled modules that no error message reports."""

_SLOW_PACKAGE = "rfc3987-syntax"
"""Optional package of jsonschema that compiles a grammar on import (installed by Jupyter)."""


@dataclass(frozen=True, slots=True)
class _ComponentStatus:
    """State of one component of the installation.

    Attributes:
        part: Name of the component.
        state: "good", "slow", "missing" or "broken".
        about: Details, such as a version or a path.
        remedy: Instructions for a fix; "" if the state is "good".
    """

    part: str
    state: str
    about: str
    remedy: str = ""


def main(argv: list[str] | None = None) -> int:
    """Print the state of each component.

    Returns:
        The exit status: 1 if a component is broken, or 0 otherwise.
    """
    options = parser().parse_args(argv)
    found = list(_check_components())
    if options.json:
        print_json([dataclasses.asdict(finding) for finding in found])
    else:
        optional = [finding for finding in found if finding.state == _MISSING]
        _print_findings([finding for finding in found if finding.state != _MISSING])
        if optional:
            sys.stdout.write("\noptional and not installed:\n")
            _print_findings(optional)
        sys.stdout.write(f"\n{_format_verdict(found)}\n")
    return int(any(finding.state == _BROKEN for finding in found))


def _print_findings(found: list[_ComponentStatus]) -> None:
    """Print one row per component, and its remedy."""
    rows = align_columns([(one.state, one.part, one.about) for one in found]).splitlines()
    for finding, row in zip(found, rows, strict=True):
        state = colorize(finding.state, _STATE_COLORS[finding.state], sys.stdout)
        sys.stdout.write(state + row[len(finding.state) :] + "\n")
        if finding.remedy:
            sys.stdout.write(f"{'':9}to fix it: {finding.remedy}\n")


def _format_verdict(found: list[_ComponentStatus]) -> str:
    """Return the verdict on the installation as one line."""
    broken = [one.part for one in found if one.state == _BROKEN]
    if broken:
        return f"verdict: broken; fix {', '.join(broken)}"
    missing = [one.part for one in found if one.state == _MISSING]
    return f"verdict: ready{', without ' + ', '.join(missing) if missing else ''}"


def parser() -> Parser:
    """Return the command-line parser."""
    parser = Parser(
        prog=_COMMAND,
        description="Show installed, compiled and missing components, the commands that need them, "
        "and the remedies.",
        epilog="exit status: 1 if a component that every command needs is broken, else 0",
    )
    add_json_option(parser)
    return parser


def _check_components() -> Iterator[_ComponentStatus]:
    """Yield the states of all components.

    The components are Python, required packages, compiled modules, extras and programs.
    """
    yield _ComponentStatus("python", _GOOD, ".".join(map(str, sys.version_info[:3])))
    required = versions.required_packages()
    reinstall = "pip install '.' in a clone, or the wheel file"
    yield _check_packages("packages", required.pop("", [versions.PACKAGE_NAME]), _BROKEN, reinstall)
    for part, (importer, name) in versions.COMPILED_MODULES.items():
        module = versions.load_compiled_module(importer, name)
        if module is None:
            about = build_check.missing_reason(name) + _CONSEQUENCES.get(part, "")
            yield _ComponentStatus(part, _BROKEN, about, build_check.BUILD_HINT)
        else:
            yield _ComponentStatus(part, _GOOD, f"compiled, {module.__file__}")
    for extra, packages in sorted(required.items()):
        commands = [name for name, c in cli_main.COMMANDS.items() if extra in c.extra.split(",")]
        remedy = install_remedy(extra)
        yield _check_packages(f"extra {extra}", packages, _MISSING, remedy, ", ".join(commands))
    if slow_version := versions.installed_version(_SLOW_PACKAGE):
        about = (
            f"{_SLOW_PACKAGE} {slow_version} adds 4 CPU seconds to each import of jsonschema "
            "and Ray; training skips it, but notebooks and `ray start` may time out"
        )
        yield _ComponentStatus("jsonschema", _SLOW, about, f"pip uninstall {_SLOW_PACKAGE}")
    for program, use in _PROGRAM_PURPOSES.items():
        path = shutil.which(program)
        remedy = "" if path else "install it with the system package manager"
        yield _ComponentStatus(
            program, _GOOD if path else _MISSING, path or f"missing (to {use})", remedy
        )


def _check_packages(
    part: str, names: list[str], bad: str, remedy: str, commands: str = ""
) -> _ComponentStatus:
    missing = [name for name in names if versions.installed_version(name) is None]
    use = f" (for {commands})" if commands else ""
    if missing:
        return _ComponentStatus(part, bad, f"missing {', '.join(missing)}{use}", remedy)
    return _ComponentStatus(part, _GOOD, plural(len(names), "package") + use)
