"""Shared command-line code: parser, error messages, colors, tables and JSON.

For a usage error, a command prints one line of at most `MAX_LINE_CHARS` characters to stderr. The
line starts with the name of the command. The exit status is 2 (`Parser.error`, `print_error`).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, ParamSpec, TypeVar

from battlesnake_gym.common.standard_streams import STDOUT_NAME
from battlesnake_gym.common.suggestions import nearest_name, unknown_name_message
from battlesnake_gym.common.untrusted_text import path_text, replace_unsafe

MAX_LINE_CHARS = 200
"""Maximum length of an error message, in characters."""

_MAX_WORD_CHARS = 24
"""Length to which the words of a longer message are shortened, in characters."""

MAX_SHORT_HELP_OPTIONS = 12
"""Maximum number of options that ``--help`` shows.

``--help-all`` shows all options.
"""

_BROKEN_PIPE_STATUS = 128 + 13
"""Exit status that shells report for a program that signal 13 (SIGPIPE) has ended."""

_MAX_MOVE_TIME_MS = 60_000
"""Maximum search time per move, in milliseconds."""

_DEFAULT_MAX_NUMBER = 2**31 - 1
"""Upper bound of number options without a narrower bound."""

_N = TypeVar("_N", int, float)
_Arguments = ParamSpec("_Arguments")

_ANSI_CODES_BY_COLOR = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
}
"""Color names for `colorize`, and their ANSI codes."""

_TYPE_DESCRIPTIONS = {
    "int": "a whole number",
    "size": "a whole number, or WIDTHxHEIGHT",
    "float": "a number",
    "milliseconds": "a number",
    "named_number": "NAME=NUMBER",
    "loads": "JSON",
}
"""Descriptions of option values in error messages, by parsing function.

The keys are the names of the functions.
"""


class _HelpFormatter(argparse.HelpFormatter):
    """Help formatter that appends defaults to help texts.

    Indented paragraphs are not wrapped.
    """

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        shown = "default" in text or default is argparse.SUPPRESS or default is None
        if shown or isinstance(default, bool | list | tuple | frozenset) or not str(default):
            return text
        return f"{text} (default: %(default)s)".lstrip()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap every paragraph except indented paragraphs, which contain examples."""
        return "\n\n".join(
            textwrap.indent(paragraph, indent)
            if paragraph.startswith(" ")
            else textwrap.fill(" ".join(paragraph.split()), width, initial_indent=indent)
            for paragraph in re.split(r"\n\s*?\n", textwrap.dedent(text.strip("\n")))
        )


class Parser(argparse.ArgumentParser):
    """Parser of one command with one-line error messages and suggestions.

    Args:
        *args: Arguments of `argparse.ArgumentParser`.
        short_help_flags: Options that ``--help`` shows. By default, ``--help`` shows the first
            options of the command.
        **kwargs: Keyword arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, *args: Any, short_help_flags: Sequence[str] = (), **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", _HelpFormatter)
        self._short_help_flags = short_help_flags
        super().__init__(*args, **kwargs)
        self.register("type", Path, local_path)
        self.add_argument("--help-all", action=_HelpAllAction, nargs=0, help=argparse.SUPPRESS)

    def visible_options(self) -> list[argparse.Action]:
        """Return all options in the order of definition, except help and hidden options."""
        return [
            action
            for action in self._actions
            if action.option_strings and action.help != argparse.SUPPRESS and action.dest != "help"
        ]

    def format_help(self, full: bool = False) -> str:
        """Return the help text.

        Args:
            full: Whether to list all options instead of only the most important options.
        """
        flags = self.visible_options()
        named = [action for action in flags if {*action.option_strings} & {*self._short_help_flags}]
        shown = flags if full else named or flags[:MAX_SHORT_HELP_OPTIONS]
        rest = [action for action in flags if action not in shown]
        hidden = [(action, action.help) for action in rest]
        for action in rest:
            action.help = argparse.SUPPRESS
        text = super().format_help()
        for action, text_of_option in hidden:
            action.help = text_of_option
        return text + (
            f"\n{plural(len(rest), 'more option')}: {self.prog} --help-all\n" if rest else ""
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments.

        The error message for an unknown option suggests the most similar option.
        """
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(
                self.unknown_argument_message(next((w for w in rest if w.startswith("-")), rest[0]))
            )
        return found

    def reject_given(self, options: argparse.Namespace, names: Iterable[str], when: str) -> None:
        """Check that options without an effect keep their defaults.

        Args:
            options: Parsed options.
            names: Attributes of the options.
            when: Condition for the message, such as ``without --web``.

        Raises:
            ValueError: If an option differs from its default.
        """
        for name in names:
            if getattr(options, name) != self.get_default(name):
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag} has no effect {when}; omit {flag}")

    def unknown_argument_message(self, word: str) -> str:
        """Return the error message for a word that is neither an option nor an argument."""
        if not word.startswith("-"):
            return f"unexpected argument {word!r}; --help shows the arguments"
        name = word.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        close = nearest_name(name.lstrip("-"), [option.lstrip("-") for option in known])
        hint = f"did you mean --{close}?" if close else "--help-all lists all options"
        return f"unknown option {name}; {hint}"

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and a one-line error message."""
        raise SystemExit(print_error(self.prog, _clean_argparse_message(message)))

    def print_help(self, file: Any = None, full: bool = False) -> None:
        """Print the help text, with bold headings if the output is a terminal."""
        out = file or sys.stdout
        heading = re.compile(r"^(usage:|[a-z][\w ,]*:$)", re.MULTILINE)
        text = self.format_help(full)
        out.write(heading.sub(lambda found: colorize(found[0], "bold", out), text))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            option = (action.option_strings or [str(action.metavar or action.dest)])[-1]
            message = unknown_name_message(option.lstrip("-"), value, names)
            if not isinstance(value, str):
                message = f"{option} must be {' or '.join(names)}, got {value}"
            raise argparse.ArgumentError(None, message)


class _HelpAllAction(argparse.Action):
    """Argparse action that prints the help for all options and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        assert isinstance(parser, Parser)
        parser.print_help(full=True)
        parser.exit()


def _clean_argparse_message(message: str) -> str:
    """Convert an argparse error message to this project's style."""
    message = re.sub(r"^argument (?:\S+/)?(\S+): ", r"\1: ", message)
    found = re.fullmatch(r"(\S+): invalid (\S+) value: (.*)", message, re.DOTALL)
    if found:
        description = _TYPE_DESCRIPTIONS.get(found[2], "another value (see --help)")
        return f"{found[1]} must be {description}, got {found[3]}"
    message = re.sub(
        r"^(\S+): expected (?:one|at least one) argument$", r"\1 needs a value", message
    )
    message = re.sub(r"^(\S+): (must|not allowed)", r"\1 \2", message)
    message = message.replace("with argument", "with")
    return re.sub(r"^the following arguments are required: (.*)$", r"\1 is missing", message)


def print_error(prog: str, error: object) -> int:
    """Print an error as one line on stderr and return exit status 2.

    A reader of standard output, for example ``| head``, may have closed the pipe. The function then
    prints nothing and returns 141, the exit status for SIGPIPE.
    """
    if isinstance(error, BrokenPipeError) and error.filename == STDOUT_NAME:
        return _BROKEN_PIPE_STATUS
    name = colorize(f"{prog}:", "bold", sys.stderr)
    text = replace_unsafe(describe_error(error))
    sys.stderr.write(f"{name} {_shorten_line(text, MAX_LINE_CHARS - len(prog) - 2)}\n")
    return 2


def reports_errors(main: Callable[_Arguments, int]) -> Callable[_Arguments, int]:
    """Decorate the ``main`` of a command to print a user's error as one line.

    The errors are ``ValueError``, ``OSError`` and ``OverflowError``. The name of the command's
    module, ``<words>_command``, determines the name in the line. The exit status is the result of
    `print_error`.
    """
    words = main.__module__.rpartition(".")[2].removesuffix("_command").split("_")

    @functools.wraps(main)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> int:
        try:
            return main(*args, **kwargs)
        except (ValueError, OSError, OverflowError) as error:
            if getattr(error, "filename", None) == STDOUT_NAME:
                raise  # The console command reports this error after it has flushed the stream.
            return print_error(" ".join(["battlesnake-gym", *words]), error)

    return run


def describe_error(error: object) -> str:
    """Return the message of an error; an error of the operating system starts with its file."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy adds the statement.
    if isinstance(error, OSError) and error.filename:
        remedy = "; give a file" if isinstance(error, IsADirectoryError) else ""
        return f"{error.filename}: {(error.strerror or 'cannot be used').lower()}{remedy}"
    return str(error)


def _shorten_line(text: str, max_chars: int) -> str:
    r"""Return ``text`` as one line of at most ``max_chars`` characters.

    Long words are shortened first, for example hashes and then paths, then the text before the
    remedy, which follows a semicolon.

    >>> _shorten_line("no such\nthing", 20), _shorten_line("abcdefghij", 6)
    ('no such thing', 'abc…ij')
    >>> _shorten_line("a.onnx: sha256 is " + 64 * "0", 48)
    'a.onnx: sha256 is 000000000000…00000000000'
    >>> _shorten_line(40 * "/part" + "/a.onnx is missing; give a path", 80)
    '/part/part/part/part/part/pa…/part/part/part/part/a.onnx is missing; give a path'
    """
    text = " ".join(text.split())
    if len(text) > max_chars:
        words = [w if "/" in w else _shorten_middle(w, _MAX_WORD_CHARS) for w in text.split()]
        text = " ".join(words)
    cause, semicolon, remedy = text.partition("; ")
    rest = semicolon + remedy
    if len(rest) > max_chars // 2:
        cause, rest = text, ""
    room = max_chars - len(rest)
    for word in sorted(cause.split(), key=len, reverse=True):
        fitting = len(word) - max(0, len(cause) - room)
        cause = cause.replace(word, _shorten_middle(word, max(fitting, _MAX_WORD_CHARS)))
    return _shorten_middle(cause, room) + rest


def _shorten_middle(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    end = (max_chars - 1) // 2
    return f"{text[: max_chars - 1 - end]}…{text[len(text) - end :]}"


def colorize(text: str, color: str, stream: IO[str]) -> str:
    """Return ``text`` with ANSI color codes if ``stream`` supports colors.

    Only terminals support colors. The environment variables ``NO_COLOR`` and ``TERM=dumb`` disable
    colors.

    Args:
        text: Text to color.
        color: Name of the color, a key of `_ANSI_CODES_BY_COLOR`.
        stream: Stream to which the text will be written.
    """
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{_ANSI_CODES_BY_COLOR[color]}m{text}\033[0m"


def bounded_number(
    kind: Callable[[str], _N], minimum: _N, maximum: _N | None = None
) -> Callable[[str], _N]:
    """Return a parser (argparse type) for a number in [minimum, maximum]."""
    highest = _DEFAULT_MAX_NUMBER if maximum is None else maximum

    def parse(text: str) -> _N:
        value = kind(text)
        if not minimum <= value <= highest:
            short = maximum is None and value < minimum
            bounds = f"{minimum} or more" if short else f"between {minimum} and {highest}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {text}")
        return value

    parse.__name__ = kind.__name__
    return parse


positive = bounded_number(int, 1)
natural = bounded_number(int, 0)
port = bounded_number(int, 0, 2**16 - 1)
seed = bounded_number(int, 0, 2**63 - 1)


def size(text: str) -> tuple[int, int]:
    """Parse a board size in cells: one number, or WIDTHxHEIGHT."""
    width, by, height = text.partition("x")
    return int(width), int(height if by else width)


def local_path(text: str) -> Path:
    """Parse a path on this machine.

    URIs are rejected, because ``Path("s3://bucket")`` is the relative path ``s3:/bucket``.
    """
    if "://" in text:
        raise argparse.ArgumentTypeError(f"must be a path on this machine, got the URI {text}")
    return Path(text)


def output_dir(text: str) -> Path:
    """Parse the path of an output directory, which may not exist yet."""
    path = local_path(text)
    existing = _nearest_existing_path(path)
    if not existing.is_dir():
        raise argparse.ArgumentTypeError(f"must be a directory, got the file {existing}")
    if path_text(path) != str(path):  # A database cannot store it.
        raise argparse.ArgumentTypeError(f"must be printable UTF-8, got {path_text(path)}")
    return path


def output_file(text: str) -> Path:
    """Parse the path of an output file, whose directory may not exist yet."""
    path = local_path(text)
    if (existing := _nearest_existing_path(path)) == path and path.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file, got the directory {text}")
    if existing != path and not existing.is_dir():
        raise argparse.ArgumentTypeError(f"must be in a directory, and {existing} is a file")
    return path


def _nearest_existing_path(path: Path) -> Path:
    """Return ``path`` or its nearest existing parent.

    Inaccessible paths are rejected.
    """
    for existing in (path, *path.parents, Path.cwd()):
        try:
            existing.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise argparse.ArgumentTypeError(
                f"must be a path that can be written, got {path}: {str(error.strerror).lower()}"
            ) from error
        if existing.is_dir() and not os.access(existing, os.W_OK | os.X_OK):
            raise argparse.ArgumentTypeError(f"must be writable, and {existing} is not")
        return existing
    return path


def milliseconds(text: str) -> float:
    """Parse a search time per move, in milliseconds."""
    value = float(text)
    if not 0 < value <= _MAX_MOVE_TIME_MS:
        wanted = f"must be greater than 0 and at most {_MAX_MOVE_TIME_MS}"
        raise argparse.ArgumentTypeError(f"{wanted}, got {text}")
    return value


def add_view_radius_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--view-radius``, the field ``view_radius`` of `rules.Settings`."""
    parser.add_argument("--view-radius", type=natural, metavar="CELLS",
        help="each snake sees only the cells within this distance of its head, as in Battlesnake "
        "Blackout (default: all cells)")  # fmt: skip


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json``, which prints a table as JSON."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def print_json(value: Any) -> None:
    """Print ``value`` as JSON, without NaN and infinity."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "game"), plural(2000, "game")
    ('1 game', '2,000 games')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def align_columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    r"""Return the rows of a table as text with aligned columns.

    Args:
        rows: Cells of each row.
        right: Indices of the right-aligned columns.

    >>> align_columns([("a", "one"), ("bcd", "two")])
    'a    one\nbcd  two\n'
    >>> align_columns([("a", "one"), ("bcd", "2")], right=[1])
    'a    one\nbcd    2\n'
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = ""
    for row in rows:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        text += "  ".join(cells).rstrip() + "\n"
    return text
