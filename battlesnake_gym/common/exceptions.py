"""Exceptions of users' code."""

from __future__ import annotations

import functools
import os
import sysconfig
import traceback
from importlib.util import find_spec
from pathlib import Path

from battlesnake_gym.common.untrusted_text import replace_unsafe

_PACKAGES = (
    "battlesnake_gym",
    "battlesnake_heuristics",
    "battlesnake_server",
    "battlesnake_rl",
    "sagemaker_rl",
)
_MAX_CHARS = 300


class SnakeError(ValueError):
    """Error raised if a snake's code fails; the message names the snake, the file and the line."""


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the stack frames outside this project and installed packages, innermost last."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not frame.filename.startswith(_library_directories())]


def describe_exception(error: BaseException, file: Path | None = None) -> str:
    """Format an exception as one line with file, line number, type and message.

    The line number refers to the innermost frame of `user_frames`, or to a syntax error in the
    executed ``file``.

    >>> describe_exception(ValueError("no food"))
    'ValueError: no food'
    """
    place, line = file or Path(), None
    if frames := user_frames(error):
        place, line = Path(frames[-1].filename), frames[-1].lineno
    # TracebackException also formats errors whose ``__str__`` raises an exception.
    text = str(traceback.TracebackException(type(error), error, None))
    if file and isinstance(error, SyntaxError):
        place, line, text = Path(error.filename or file), error.lineno, error.msg
    if place.is_absolute() and place.is_relative_to(Path.cwd()):
        place = place.relative_to(Path.cwd())
    name = type(error).__name__
    parts = [f"{place}, line {line}" if line else str(place)] if place.name else []
    text = ": ".join([*parts, name, *([text] if text else [])])
    return replace_unsafe(" ".join(text.split()))[:_MAX_CHARS]


@functools.cache
def _library_directories() -> tuple[str, ...]:
    """Return the path prefixes of this project, the standard library and packages.

    The program of `pack`, which runs with ``python -c``, has the path ``<string>``.
    """
    found = map(find_spec, _PACKAGES)
    ours = [str(Path(spec.origin).parent) for spec in found if spec and spec.origin]
    installed = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return ("<frozen ", "<string>", *(path + os.sep for path in [*ours, *installed]))
