"""Sphinx extension: generated pages of commands, settings and the Python API.

Before Sphinx reads the pages, the extension writes

* one page per command, from its parser, into `docs/_reference`,
* the tables of settings, environment options and network inputs that pages include,
* one page per package, which documents all its modules, into `docs/_api`.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import math
import pkgutil
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from battlesnake_gym.cli.main import COMMANDS, load_command
from battlesnake_gym.config import EnvConfig
from battlesnake_heuristics.search.evaluation import BOARD_INPUTS, SNAKE_INPUTS

DOCS = Path(__file__).parent

API_PACKAGES = (
    *("battlesnake_gym", "battlesnake_heuristics", "sagemaker_rl", "battlesnake_server"),
    *("battlesnake_rl.mabs", "battlesnake_rl.onnx_export", "battlesnake_rl.procgen"),
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension. Sphinx calls this function."""
    app.connect("builder-inited", lambda app: _write_all())
    return {"parallel_read_safe": True}


def _write_all() -> None:
    """Write all generated pages."""
    pages = {f"{name.replace(' ', '-')}.md": _command_page(name) for name in COMMANDS}
    from battlesnake_rl.mabs.settings.algorithm_settings import ALGORITHMS
    from battlesnake_rl.procgen.procgen_ppo import ProcgenPPOSettings

    sections = [f"## {name}\n\n{_settings_table(cls)}" for name, cls in ALGORITHMS.items()]
    tables = {
        "settings.md": "\n".join(sections),
        "environment.md": _settings_table(EnvConfig),
        "procgen.md": _settings_table(ProcgenPPOSettings),
        "search-inputs.md": _inputs_table(),
    }
    _write_pages(DOCS / "_reference", pages | tables)
    _write_pages(DOCS / "_api", {f"{name}.rst": _api_page(name) for name in _iter_packages()})


def _write_pages(folder: Path, pages: dict[str, str]) -> None:
    """Write texts into a folder; unchanged files keep their time, and other files are deleted."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _iter_packages() -> Iterator[str]:
    """Yield the names of all public packages, and of modules in `API_PACKAGES`."""
    for root in API_PACKAGES:
        yield root
        module = importlib.import_module(root)
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{root}."):
            if found.ispkg and _is_public(found.name):
                yield found.name


def _is_public(name: str) -> bool:
    """Return whether no part of a module's name starts with an underscore."""
    return not any(part.startswith("_") for part in name.split("."))


def _api_page(name: str) -> str:
    """Return the page of a package: its own documentation, and that of its modules."""
    package = importlib.import_module(name)
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", ""]
    for member in getattr(package, "__all__", ()):
        value = getattr(package, member)
        if getattr(value, "__module__", "").startswith(name.partition(".")[0]):
            lines.append(f"* :py:obj:`{member} <{value.__module__}.{value.__qualname__}>`")
    for found in pkgutil.iter_modules(getattr(package, "__path__", ())):
        module = f"{name}.{found.name}"
        if not found.ispkg and _is_public(module):
            lines += ["", module, "-" * len(module), "", f".. automodule:: {module}"]
    return "\n".join(lines) + "\n"


def _command_page(name: str) -> str:
    """Return the page of a command, with all its arguments and options."""
    command, parser = COMMANDS[name], load_command(name).parser()
    lines = [f"# `battlesnake-gym {name}`", "", f"This page shows how to {command.help}."]
    if command.extra:
        lines += ["", f'Needs `pip install ".[{command.extra}]"`.']
    lines += ["", *_paragraphs(parser.description or ""), ""]
    for title, actions in _groups(parser):
        lines += [f"## {title}", ""]
        for action in actions:
            lines += [_signature(action), f": {_escape(_help_text(parser, action))}", ""]
    lines += _paragraphs(parser.epilog or "")
    return "\n".join(lines) + "\n"


def _groups(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    """Yield the titles of a parser's groups, and their visible arguments."""
    for group in parser._action_groups:
        shown = [a for a in group._group_actions if a.help != argparse.SUPPRESS]
        if shown := [action for action in shown if action.dest != "help"]:
            yield (group.title or "options").capitalize(), shown


def _signature(action: argparse.Action) -> str:
    """Return the forms of an option with its value, or the name of an argument."""
    value = argparse.HelpFormatter("")._format_args(action, (action.dest or "").upper())
    if not action.option_strings:
        return f"`{action.metavar or action.dest.upper()}`"
    return ", ".join(f"`{f'{option} {value}'.strip()}`" for option in action.option_strings)


def _help_text(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the expanded help text of an argument, with its default."""
    formatter: Any = parser.formatter_class(prog=parser.prog)
    return " ".join(str(formatter._expand_help(action)).split())


def _paragraphs(text: str) -> list[str]:
    """Return a parser's text as Markdown; lines with a deeper indentation become a block."""
    lines: list[str] = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        rows = part.splitlines()
        words = [row for row in rows if not row.startswith(" ")]
        code = [row.strip() for row in rows if row.startswith(" ")]
        if words:
            lines += [_escape(" ".join(words)), ""]
        if code:
            lines += ["```text", *code, "```", ""]
    return lines


def _escape(text: str) -> str:
    """Return text that Markdown shows as it is; options and text in backquotes become code."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"(?<![`\w-])(--[a-z][\w-]*)(?!`)", r"`\1`", text))
    return "".join(
        part if number % 2 else re.sub(r"([\\*_<>\[\]{}$|#])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def _settings_table(cls: type[Any]) -> str:
    """Return a table of the fields of a dataclass: name, default and meaning."""
    docs, kinds = _field_docs(cls), typing.get_type_hints(cls)
    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(cls):
        default = _shown_default(field)
        text = field.metadata.get("help") or docs.get(field.name, "")
        kind = _escape(_short_type(kinds[field.name]))
        lines.append(f"| `{field.name}` | {kind} | {default} | {_escape(text)} |")
    return "\n".join(lines) + "\n"


def _short_type(kind: Any) -> str:
    """Return the name of a type without modules and without the types of elements."""
    kind = getattr(kind, "__constraints__", (kind,))[-1]  # A type variable has constraints.
    name = kind.__name__ if type(kind) is type else str(kind)
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", name)) != name:
        name = shorter
    return re.sub(r"\b\w+\.", "", name)


def _inputs_table() -> str:
    """Return a table of the inputs of the search's network."""
    lines = ["| of | input | counts |", "|---|---|---|"]
    for kind, inputs in (("board", BOARD_INPUTS), ("snake", SNAKE_INPUTS)):
        lines += [f"| {kind} | `{one.name}` | {_escape(one.unit)} |" for one in inputs.values()]
    return "\n".join(lines) + "\n"


def _shown_default(field: dataclasses.Field[Any]) -> str:
    """Return a field's default in the notation of hyperparameters (JSON)."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value in (dataclasses.MISSING, None, math.inf):
        return "none"
    return f"`{json.dumps(value)}`"


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """Return the first line of the docstring below each field of a class and its bases."""
    found: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for node, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
                text = getattr(below.value, "value", "")
                if isinstance(node.target, ast.Name) and isinstance(text, str):
                    found[node.target.id] = text.strip().partition("\n")[0]
    return found
