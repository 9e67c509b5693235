"""Run directories: ``run.json``, the lock, ``progress.csv`` and recorded games.

This module does not import training code, because the server also uses the module.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from battlesnake_gym.common import file_locks, old_runs
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.untrusted_text import parse_json

RUN_FILE = "run.json"
"""File with the settings, stop conditions and state of a run."""

RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
"""States of a run, which the process of the run writes."""

LOCK_FILE = ".lock"
"""File that names the process that writes into the directory.

The operating system owns the lock and releases the lock when the process ends, even after a kill
signal. A leftover file therefore does not block other processes.
"""

_MAX_LOCK_ATTEMPTS, _RETRY_INTERVAL_S = 5, 0.05
"""Maximum number of attempts to lock, and interval between attempts in seconds.

`is_locked` also locks the file briefly.
"""

CSV_FILE = "progress.csv"
ITERATION_COLUMN = "training_iteration"
"""Name of the first column of ``progress.csv``."""

GAMES_DIR = "games"
"""Directory of recorded games, at most one per checkpoint.

The games remain when their checkpoints are deleted.
"""

_RECORDING_TIME_FRACTION = 0.02
"""Maximum fraction of a run's time that is spent on recording games."""

_MIN_ANIMATION_TIME_RATIO = 1.1
"""Minimum ratio of the training times of two consecutive animations.

This ratio gives about 70 animations per run.
"""

REPORT_FILE = "report.html"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Status of a run, which is the content of ``run.json``.

    Attributes:
        state: State that the process of the run has written. A killed process leaves the state
            "running"; `is_locked` detects this case.
        started_at: Unix timestamp of the start of the last process, in seconds.
        ended_at: Unix timestamp of the end of the last process, in seconds.
        reason: Reason why the run failed.
        stop_conditions: ``num_iters``, ``minutes``, ``cpu_minutes`` and ``env_steps``, or None.
        settings: All hyperparameters by name, and the RLlib options that were set.
        identity: Settings that a resumed run cannot change.
        versions: Package versions, keyed by package name.
    """

    state: str
    started_at: float
    ended_at: float | None = None
    reason: str = ""
    stop_conditions: dict[str, float | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, run_dir: Path) -> None:
        """Write ``run.json`` atomically."""
        text = json.dumps(asdict(self), indent=1, default=str) + "\n"
        write_atomically(run_dir / RUN_FILE, lambda temporary: temporary.write_text(text))

    @classmethod
    def load(cls, run_dir: Path) -> RunStatus | None:
        """Return the status of a run, or None if the file is missing or unreadable."""
        try:
            found = parse_json((run_dir / RUN_FILE).read_bytes())
            found = old_runs.convert_checkpoint_metadata(found)
            status = cls(**{name: found[name] for name in cls.__slots__ if name in found})
            status._check()
        except Exception:  # The file may contain any value at any place.
            return None
        return status

    def _check(self) -> None:
        """Raise an exception unless the views of a run can show all fields."""
        # These functions raise exceptions for other types and for numbers that are out of range.
        "".join((self.state, self.reason))
        for seconds in (self.started_at, self.ended_at or 0):
            time.localtime(seconds)
        for wanted in self.stop_conditions.values():
            math.isfinite(wanted or 0)
        for settings in (self.stop_conditions, self.settings, self.identity, self.versions):
            flatten_settings(settings)


def flatten_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Convert nested settings to texts by dotted name.

    Settings with the value None are omitted.

    >>> flatten_settings({"lr": 0.5, "seed": None, "rl": {"n_step": 3}, "map": "royale"})
    {'lr': '0.5', 'rl.n_step': '3', 'map': 'royale'}
    """
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{name}.{inner}": text for inner, text in flatten_settings(value).items()}
        elif value is not None:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


@contextmanager
def lock_run_dir(run_dir: Path) -> Iterator[None]:
    """Lock a run directory for this process.

    A missing directory is created.

    Raises:
        ValueError: If another process has locked the directory.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / LOCK_FILE).open("a+") as file:
        for _ in range(_MAX_LOCK_ATTEMPTS):
            if _locks(file):
                break
            time.sleep(_RETRY_INTERVAL_S)
        else:
            owner = file_locks.read_owner(file) or "another process"
            raise ValueError(
                f"{run_dir} is being written by {owner}; wait for it, or choose another --name"
            )
        file_locks.write_owner(file)
        yield


def _locks(file: IO[str]) -> bool:
    """Lock a run directory; on a file system without locks, print a warning instead."""
    try:
        return file_locks.try_lock(file)
    except OSError as error:
        sys.stderr.write(f"{file_locks.missing_message(file, error)}\n")
        return True


def is_locked(run_dir: Path) -> bool:
    """Return whether a running process has locked ``run_dir``.

    On a file system without locks, the directory counts as locked while the process that last
    locked the directory runs on this machine. A process on another machine counts as running.
    """
    try:
        with (run_dir / LOCK_FILE).open() as file:
            try:
                return not file_locks.try_lock(file, shared=True)
            except OSError:
                return file_locks.owner_may_run(file)
    except OSError:
        return False


def read_progress(path: Path) -> list[dict[str, float]]:
    """Return the rows of a ``progress.csv``.

    A missing file has no rows. Missing numbers are NaN. An incomplete last line is skipped, because
    a process is still writing the line or was killed.

    Raises:
        ValueError: If a line is too long.
        OSError: If the file cannot be read.
    """
    progress = ProgressTable(path)
    try:
        progress.refresh()
    except csv.Error as error:
        raise ValueError(f"{path}: {error}; give the progress.csv of a run") from error
    rows = zip(*progress.columns.values(), strict=True)
    return [dict(zip(progress.columns, row, strict=True)) for row in rows]


class ProgressTable:
    """Columns of a ``progress.csv`` as of the last `refresh`.

    `refresh` reads only the new rows. If the file was replaced, for example by a resumed run,
    `refresh` reads the whole file. Missing values, text and absolute values above 1e100 become NaN.
    """

    def __init__(self, path: Path) -> None:
        self.columns: dict[str, array[float]] = {}
        self._path = path
        self._file: tuple[int, int] | None = None
        self._read = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def refresh(self) -> None:
        """Read all complete new lines.

        A missing file counts as an empty file.

        Raises:
            csv.Error: If a line is too long.
            OSError: If the file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                identity = status.st_dev, status.st_ino
                if identity != self._file or status.st_size < self._read:
                    self.columns, self._file, self._read = {}, identity, 0
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            self.columns, self._file, self._read = {}, None, 0
            return
        complete = new[: new.rfind(b"\n") + 1]
        # If a line is too long, the next call reads the same lines and fails again.
        rows = list(csv.reader(io.StringIO(complete.decode("utf-8-sig", "replace"), newline="")))
        self._read += len(complete)
        for row in rows:
            if not self.columns:
                self.columns = {old_runs.convert_csv_column(name): array("d") for name in row}
                continue
            for index, column in enumerate(self.columns.values()):
                column.append(_parse_float(row[index]) if index < len(row) else math.nan)

    def column(self, name: str) -> Sequence[float]:
        """Return the values of a column, or an empty sequence if the column is missing."""
        return self.columns.get(name, ())

    def last(self, name: str) -> float:
        """Return the last number in a column, or NaN if the column contains no number."""
        return next(
            (value for value in reversed(self.column(name)) if not math.isnan(value)), math.nan
        )


def smooth(values: Sequence[float], span: int) -> list[float]:
    """Return the centered moving average over about ``span`` values.

    NaN values are skipped. The window is symmetric and shrinks towards both ends. The curve
    therefore starts with the first value and ends with the last value.

    >>> smooth([1.0, 3.0, float("nan"), 5.0, 9.0], 3)
    [1.0, 2.0, 4.0, 7.0, 9.0]
    """
    means = []
    for index in range(len(values)):
        radius = min(span // 2, index, len(values) - 1 - index)
        neighbors = values[index - radius : index + radius + 1]
        window = [value for value in neighbors if not math.isnan(value)]
        means.append(sum(window) / len(window) if window else math.nan)
    return means


def _parse_float(text: str) -> float:
    """Return a number whose products and ratios stay within the range of a float."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    if abs(number) < 1e-100:
        return 0.0
    return number if abs(number) < 1e100 else math.nan


def find_recorded_games(games_dir: Path) -> dict[int, Path]:
    """Return the recorded games in a directory by iteration, in ascending order."""
    found = {}
    for name in list_names(games_dir):
        if number := re.fullmatch(r"iteration-(\d+)\.jsonl\.gz", name):
            found[int(number[1])] = games_dir / name
    return dict(sorted(found.items()))


def list_names(directory: Path) -> list[str]:
    """Return the names in a directory, or an empty list without a readable directory.

    Another process may delete the directory of a run at any time.
    """
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []


class GameRecorder:
    """Recorder of games that uses a small fraction of a run's time.

    The maximum fraction is `_RECORDING_TIME_FRACTION`.

    Args:
        games_dir: Directory of the recorded games.
        resumed_at: Iteration of the checkpoint that the run resumes from; later games are deleted.
    """

    def __init__(self, games_dir: Path, resumed_at: int) -> None:
        self._games_dir = games_dir
        self._spent = self._animation_at = 0.0
        for iteration, path in find_recorded_games(games_dir).items():
            if iteration > resumed_at:
                path.unlink()

    def add(
        self, algorithm: Any, iteration: int, train_seconds: float, *, last: bool = False
    ) -> bytes | None:
        """Record a game if the time budget permits the recording, or if ``last`` is True.

        Args:
            algorithm: The algorithm that plays. Its method ``play_sample_game`` returns a replay
                or None; without the method, no game is recorded.
            iteration: Current iteration.
            train_seconds: Training time of the run, in seconds.
            last: Whether this is the last iteration of the run.

        Returns:
            An animation of the game as GIF bytes, or None if no animation is due.
        """
        if self._spent > _RECORDING_TIME_FRACTION * train_seconds and not last:
            return None
        started, animation = time.monotonic(), None
        if (replay := getattr(algorithm, "play_sample_game", lambda: None)()) is not None:
            replay.save(self._games_dir / f"iteration-{iteration:06d}.jsonl.gz")
            if last or train_seconds >= _MIN_ANIMATION_TIME_RATIO * self._animation_at:
                animation = bytes(replay.to_gif())
                self._animation_at = train_seconds
        self._spent += time.monotonic() - started
        return animation
