"""Curves of a run: ``progress.csv`` and TensorBoard, both going on where a resumed run left off."""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

CSV_FILE = "progress.csv"
ITERATION = "training_iteration"


def flatten(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """All numbers in nested ``results``, under their keys joined by slashes."""
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        elif not isinstance(value, bool | str):
            try:
                yield f"{prefix}{key}", float(value)
            except (TypeError, ValueError):
                continue


class Curves:
    """Writes one row, and one TensorBoard point for each number, an iteration.

    ``columns`` maps the CSV's column names to keys of the results as `flatten` gives them; absent
    numbers are left empty. Rows after iteration ``resumed_at`` are dropped at the start: they
    belong to work that no checkpoint has.
    """

    def __init__(self, folder: Path, columns: Mapping[str, str], resumed_at: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / CSV_FILE
        self._columns = dict(columns)
        rows = [row for row in read(self._path) if row[ITERATION] <= resumed_at]
        draft = self._path.with_suffix(".csv.unfinished")
        with draft.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self._columns)
            writer.writerows(
                [_text(row.get(name, math.nan)) for name in self._columns] for row in rows
            )
        draft.replace(self._path)
        board = folder / "tensorboard"
        if resumed_at == 0:
            shutil.rmtree(board, ignore_errors=True)
        # Files are named by the second; the suffix keeps those of quick restarts apart.
        self._board = SummaryWriter(
            str(board), purge_step=resumed_at + 1, filename_suffix=f".{resumed_at}"
        )

    def add(self, results: Mapping[str, Any]) -> None:
        """Append one iteration's results."""
        numbers = dict(flatten(results))
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(
                _text(numbers.get(key, math.nan)) for key in self._columns.values()
            )
        for key, number in numbers.items():
            if math.isfinite(number):
                self._board.add_scalar(key, number, int(numbers[ITERATION]))
        self._board.flush()

    def close(self) -> None:
        """Close the TensorBoard file."""
        self._board.close()


def read(path: Path) -> list[dict[str, float]]:
    """The rows of a ``progress.csv``, NaN where a number is missing; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [
            {name: float(text) if text else math.nan for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _text(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.10g}"
