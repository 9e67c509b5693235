"""What all commands share: one parser, one line for a mistake, colours, tables and JSON.

A mistake is answered on stderr in one line of at most `LONGEST_LINE` characters, which begins with
the command's name, and with exit status 2 (`Parser.error`, `print_error`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO, TypeVar

from battlesnake_gym.common.suggestions import nearest, unknown_name_message

MAX_LINE_CHARS = 200
"""Characters of the line that answers a mistake."""

MAX_SHORT_HELP_FLAGS = 12
"""Options that ``--help`` shows; ``--help-all`` shows the others too."""

_MAX_MOVE_TIME_MS = 60_000
"""Milliseconds of a search for one move."""

_LARGEST = 2**31 - 1
"""The largest number that an option takes which has no other bound."""

_N = TypeVar("_N", int, float)

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
"""The colours that `colorize` knows, and their numbers in a terminal."""

_TYPE_DESCRIPTIONS = {
    "int": "a whole number",
    "size": "a whole number, or WIDTHxHEIGHT",
    "float": "a number",
    "milliseconds": "a number",
    "named_number": "NAME=NUMBER",
    "loads": "JSON",
}
"""What a message calls the values of an option, by the name of the function that reads them."""


class Formatter(argparse.HelpFormatter):
    """Shows the defaults that are worth showing, and leaves indented lines as they are."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        shown = "default" in text or default is argparse.SUPPRESS
        if shown or default is None or isinstance(default, bool) or not str(default):
            return text
        if isinstance(default, list | tuple | frozenset):
            return text
        return f"{text} (default: %(default)s)".lstrip()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap each paragraph, but for those that are indented: examples."""
        return "\n\n".join(
            textwrap.indent(part, indent)
            if part.startswith(" ")
            else textwrap.fill(" ".join(part.split()), width, initial_indent=indent)
            for part in re.split(r"\n\s*?\n", textwrap.dedent(text.strip("\n")))
        )


class Parser(argparse.ArgumentParser):
    """The parser of one command: wrong words are answered in one line, with the nearest right ones.

    As `argparse.ArgumentParser`, which it is. ``first`` are the options that ``--help`` shows; none
    named: the first `MAX_SHORT_HELP_FLAGS`.
    """

    def __init__(self, *args: Any, short_help_flags: Sequence[str] = (), **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", Formatter)
        self._first = short_help_flags
        super().__init__(*args, **kwargs)
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help=argparse.SUPPRESS)

    def flags(self) -> list[argparse.Action]:
        """The options, in their order, without those that show the help and those not shown."""
        options = [action for action in self._actions if action.option_strings]
        return [one for one in options if one.help != argparse.SUPPRESS and one.dest != "help"]

    def format_help(self, whole: bool = False) -> str:
        """As `argparse.ArgumentParser.format_help`; the ``whole`` of it, or the first options."""
        flags = self.flags()
        named = [one for one in flags if {*one.option_strings} & {*self._first}]
        rest = (
            []
            if whole
            else [one for one in flags if one not in (named or flags[:MAX_SHORT_HELP_FLAGS])]
        )
        hidden = [(one, one.help) for one in rest]
        for one in rest:
            one.help = argparse.SUPPRESS
        text = super().format_help()
        for one, shown in hidden:
            one.help = shown
        return text + (f"\n{len(rest)} more options: {self.prog} --help-all\n" if rest else "")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As `argparse.ArgumentParser.parse_args`; of an unknown option the nearest is named."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(
                self.unknown_argument_message(next((w for w in rest if w.startswith("-")), rest[0]))
            )
        return found

    def unknown_argument_message(self, word: str) -> str:
        """The message about a word that is neither an option nor an argument."""
        if not word.startswith("-"):
            return f"unexpected {word!r}; --help shows what may be given"
        name = word.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        close = nearest(name.lstrip("-"), [option.lstrip("-") for option in known])
        hint = f"did you mean --{close}?" if close else "--help lists all there are"
        return f"unknown option {name}; {hint}"

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line about what was wrong."""
        raise SystemExit(print_error(self.prog, _clean_argparse_message(message)))

    def print_help(self, file: Any = None, whole: bool = False) -> None:
        """As `argparse.ArgumentParser.print_help`, with bold headings in a terminal."""
        out = file or sys.stdout
        heading = re.compile(r"^(usage:|[a-z][\w ,]*:$)", re.MULTILINE)
        text = self.format_help(whole)
        out.write(heading.sub(lambda found: colorize(found[0], "bold", out), text))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            what = (action.option_strings or [str(action.metavar or action.dest)])[-1].lstrip("-")
            raise argparse.ArgumentError(None, unknown_name_message(what, value, names))


class _HelpAll(argparse.Action):
    """Prints the whole help, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        assert isinstance(parser, Parser)
        parser.print_help(whole=True)
        parser.exit()


def _clean_argparse_message(message: str) -> str:
    """An error of argparse as a person would say it."""
    message = re.sub(r"^argument (?:\S+/)?(\S+): ", r"\1: ", message)
    found = re.fullmatch(r"(\S+): invalid (\S+) value: (.*)", message, re.DOTALL)
    if found:
        what = _TYPE_DESCRIPTIONS.get(found[2], "something else (--help says what)")
        return f"{found[1]} must be {what}, got {found[3]}"
    message = re.sub(
        r"^(\S+): expected (?:one|at least one) argument$", r"\1 needs a value", message
    )
    message = re.sub(r"^(\S+): (must|not allowed)", r"\1 \2", message)
    message = message.replace("with argument", "with")
    return re.sub(r"^the following arguments are required: (.*)$", r"\1 is missing", message)


def print_error(prog: str, error: object) -> int:
    """Answer a mistake in one line on stderr; returns the exit status, 2."""
    name = colorize(f"{prog}:", "bold", sys.stderr)
    if isinstance(error, OSError) and error.filename:
        error = f"{error.filename}: {(error.strerror or 'cannot be used').lower()}"
    text = one_line(str(error), MAX_LINE_CHARS - len(prog) - 2)
    sys.stderr.write(f"{name} {text}\n")
    return 2


def one_line(text: str, most: int) -> str:
    """``text`` without line breaks and cut in its middle where it is longer than ``most``.

    >>> one_line("no such\\nthing", 20), one_line("abcdefghij", 6)
    ('no such thing', 'abc…ij')
    """
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def colorize(text: str, colour: str, stream: IO[str]) -> str:
    """``text`` in a colour of `_COLOURS`, if ``stream`` is a terminal that shows colours.

    ``NO_COLOR`` and ``TERM=dumb`` turn colours off.
    """
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{_COLOURS[colour]}m{text}\033[0m"


def bounded_number(
    kind: Callable[[str], _N], least: _N, most: _N | None = None
) -> Callable[[str], _N]:
    """What reads an option that is a number, ``least`` at least and ``most`` at most."""

    def read(text: str) -> _N:
        value = kind(text)
        if not least <= value <= (_LARGEST if most is None else most):
            bounds = f"{least} or more" if most is None else f"between {least} and {most}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {text}")
        return value

    read.__name__ = kind.__name__
    return read


positive = bounded_number(int, 1)
natural = bounded_number(int, 0)
port = bounded_number(int, 0, 2**16 - 1)
seed = bounded_number(int, 0, 2**63 - 1)


def size(text: str) -> tuple[int, int]:
    """An option that is a board's width and height, or one number for both."""
    width, _, height = text.partition("x")
    return int(width), int(height or width)


def writable(text: str) -> Path:
    """An option that is a folder to write into, which is made where it is missing."""
    if (path := Path(text)).is_file():
        raise argparse.ArgumentTypeError(f"must be a folder, got the file {text}")
    return path


def milliseconds(text: str) -> float:
    """An option that is a search's time for a move, in milliseconds."""
    value = float(text)
    if not 0 < value <= _MAX_MOVE_TIME_MS:
        wanted = f"must be above 0 and at most {_MAX_MOVE_TIME_MS}"
        raise argparse.ArgumentTypeError(f"{wanted}, got {text}")
    return value


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option ``--json`` of a command that prints a table."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def write_json(value: Any, out: TextIO | None = None) -> None:
    """Print ``value`` as strict JSON."""
    (out or sys.stdout).write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as lines with their columns below each other; the last is not filled up.

    >>> columns([("a", "one"), ("bcd", "two")])
    'a    one\\nbcd  two\\n'
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() + "\n" for row in rows
    )
    return "".join(lines)
