"""Standard streams of the console command: encodings and write errors."""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT_NAME = "standard output"
"""File name in the errors of writes to standard output."""


class _StdoutFile(io.FileIO):
    """Standard output stream whose write errors contain a file name."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write ``data`` and return the number of bytes written."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, STDOUT_NAME) from error


def prepare_streams(as_json: bool) -> None:
    """Replace unsuitable standard streams of this process.

    Characters that the encoding lacks are replaced. Closed streams are opened: input is empty,
    standard error is discarded, and a write to standard output raises ``OSError``. The function
    does nothing if standard output was replaced, as in tests.

    Args:
        as_json: Whether standard output must contain only JSON. Output of child processes and of
            ``print`` calls in users' code is then redirected to standard error.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    before = sys.stdout
    if before is not None and (
        before is not sys.__stdout__
        or not isinstance(before, io.TextIOWrapper)
        or type(_raw_stream(before)) is not io.FileIO
    ):
        return
    # A write to a file that is open for reading fails, as with a closed standard output.
    file = os.open(os.devnull, os.O_RDONLY) if before is None else 1
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if as_json:
        builtins.print = functools.partial(print, file=sys.stderr)
        if before is not None:
            file = os.dup(1)
            os.dup2(sys.stderr.fileno(), 1)
    buffer = io.BufferedWriter(_StdoutFile(file, "wb", closefd=False))
    if before is None:
        sys.stdout = io.TextIOWrapper(buffer, errors="replace")
        return
    sys.stdout = io.TextIOWrapper(
        buffer,
        before.encoding,
        "replace" if before.errors in ("strict", "surrogateescape") else before.errors,
        line_buffering=before.line_buffering or before.write_through,
    )


def _raw_stream(stream: object) -> object:
    """Return the unbuffered binary stream below a text stream, or None."""
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def flush_stdout() -> None:
    """Flush standard output.

    After a failed flush, further output is discarded, because the interpreter would fail again at
    exit.

    Raises:
        OSError: If the output cannot be written.
    """
    try:
        sys.stdout.flush()
    except OSError:
        if isinstance(_raw_stream(sys.stdout), _StdoutFile):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
