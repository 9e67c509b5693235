"""Curves of a run: ``progress.csv`` and TensorBoard, both going on where a resumed run left off."""

from __future__ import annotations

import contextlib
import csv
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter  # type: ignore[import-untyped]
from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.summary import scalar  # type: ignore[import-untyped]

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
        board.mkdir(exist_ok=True)
        # Files are named by the second; the suffix keeps those of quick restarts apart. Without
        # tensorboardX's thread: where a disk is full it dies, and who writes waits for ever.
        self._board = EventsWriter(str(board / "events"), f".{resumed_at}")
        start = SessionLog(status=SessionLog.START)
        self._write_event(resumed_at + 1, session_log=start)

    def add(self, results: Mapping[str, Any]) -> None:
        """Append one iteration's results."""
        numbers = dict(flatten(results))
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(
                _text(numbers.get(key, math.nan)) for key in self._columns.values()
            )
        for key, number in numbers.items():
            if math.isfinite(number):
                self._write_event(int(numbers[ITERATION]), summary=scalar(key, number))
        self._board.flush()

    def _write_event(self, step: int, **content: Any) -> None:
        self._board.write_event(Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Close the TensorBoard file; what a full disk has no room for is lost."""
        with contextlib.suppress(OSError):
            self._board.close()


def read(path: Path) -> list[dict[str, float]]:
    """The rows of a ``progress.csv``, NaN where a number is missing; none if there is no file.

    A last line that has no end is left out: it is being written, or its writer was killed.
    """
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        whole = [line for line in file if line.endswith("\n")]
    return [
        {name: float(text) if text else math.nan for name, text in row.items()}
        for row in csv.DictReader(whole)
    ]


def _text(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.10g}"
