"""``progress.csv`` as those read it who draw or compare runs: light, and again while it grows."""

from __future__ import annotations

import csv
import io
import math
import os
from array import array
from collections.abc import Sequence
from pathlib import Path

CSV_FILE = "progress.csv"
ITERATION = "training_iteration"


def read(path: Path) -> list[dict[str, float]]:
    """The rows of a ``progress.csv``, NaN where a number is missing; none if there is no file.

    A last line that has no end is left out: it is being written, or its writer was killed.
    """
    progress = Progress(path)
    progress.look()
    rows = zip(*progress.columns.values(), strict=True)
    return [dict(zip(progress.columns, row, strict=True)) for row in rows]


class Progress:
    """The columns of a ``progress.csv``, as far as it was written at the last `look`.

    Only what was added is read; a file that was begun anew, as by a run that is resumed, is read
    from its beginning. What is no number is NaN, as is what a row does not have.
    """

    def __init__(self, path: Path) -> None:
        self.columns: dict[str, array[float]] = {}
        self._path = path
        self._file: tuple[int, int] | None = None
        self._read = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def look(self) -> None:
        """Read on to the last whole line; no file is as good as an empty one."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                this = status.st_dev, status.st_ino
                if this != self._file or status.st_size < self._read:
                    self.columns, self._file, self._read = {}, this, 0
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            self.columns, self._file, self._read = {}, None, 0
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        rows = csv.reader(io.StringIO(whole.decode("utf-8", "replace"), newline=""))
        for row in rows:
            if not self.columns:
                self.columns = {name: array("d") for name in row}
                continue
            for place, column in enumerate(self.columns.values()):
                column.append(_number(row[place]) if place < len(row) else math.nan)

    def column(self, name: str) -> Sequence[float]:
        """The numbers of one column, in each row; none where the run has no such column."""
        return self.columns.get(name, ())

    def last(self, name: str) -> float:
        """The last number of a column that is not missing, or NaN."""
        return next((one for one in reversed(self.column(name)) if not math.isnan(one)), math.nan)


def smooth(values: Sequence[float], span: int) -> list[float]:
    """Running mean over about ``span`` values, as many before as after, without missing ones (NaN).

    Towards both ends fewer are taken, so that the curve begins and ends where the values do and
    neither lags behind them nor looks ahead.

    >>> smooth([1.0, 3.0, float("nan"), 5.0, 9.0], 3)
    [1.0, 2.0, 4.0, 7.0, 9.0]
    """
    means = []
    for place in range(len(values)):
        reach = min(span // 2, place, len(values) - 1 - place)
        around = values[place - reach : place + reach + 1]
        window = [value for value in around if not math.isnan(value)]
        means.append(sum(window) / len(window) if window else math.nan)
    return means


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
