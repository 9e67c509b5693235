"""A run's folder: ``run.json``, the lock, ``progress.csv``, recorded games, the report.

Light, for those too who only look at runs, and again and again while they grow.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import math
import os
import re
import socket
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from battlesnake_gym.common.files import write_atomically

RUN_FILE = "run.json"
"""What is trained, until when, and its state."""

RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
"""States of a run, as its process has noted them."""

LOCK_FILE = ".lock"
"""Shows who writes into the folder. The lock itself is the system's, and ends with the process,
however that ends: a file that was left behind locks no one out."""

_ATTEMPTS, _PAUSE = 5, 0.05
"""Who only looks (`is_locked`) has the lock for a moment: so often it is tried, and seconds apart."""

CSV_FILE = "progress.csv"
ITERATION = "training_iteration"
"""Its first column."""

GAMES_DIR = "games"
"""Folder of the games that the run was shown in, one with a checkpoint; they outlive it."""

_RECORDING_TIME_FRACTION = 0.02
"""The part of a run's time that playing and drawing games may take."""

_ANIMATION_SPACING = 1.1
"""A film is drawn at this many times the training time of the last one: some 70 in all."""

RecordGame = Callable[[Any, Path, bool], bytes | None]
"""Lets an algorithm play a game into a file; with True it returns the game as a GIF, too."""

REPORT = "report.html"


class LockedError(ValueError):
    """Another process writes into the folder; says which."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What the file says.

    ``state`` is as the run's process has written it: one that was killed leaves "running" behind
    (`is_locked` knows). ``why`` is the reason why a run failed. ``settings`` are all
    hyperparameters by name; of what RLlib has only those that were given. ``stop_conditions`` has
    ``num_iters``, ``minutes``, ``cpu_minutes`` and ``timesteps``, or None for what does not end it.
    ``started_at`` and ``ended_at`` are seconds since 1970 of the last process.
    """

    state: str
    started_at: float
    ended_at: float | None = None
    reason: str = ""
    stop_conditions: dict[str, float | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        text = json.dumps(asdict(self), indent=1, default=str) + "\n"
        write_atomically(folder / RUN_FILE, lambda part: part.write_text(text))

    @classmethod
    def of(cls, folder: Path) -> RunStatus | None:
        """That of a run; None where there is no such file, or it cannot be read."""
        try:
            found = json.loads((folder / RUN_FILE).read_text())
            return cls(**{name: found[name] for name in cls.__slots__ if name in found})
        except (OSError, ValueError, TypeError):
            return None


def flatten_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as text by dotted name, without those that are None.

    >>> plain({"lr": 0.5, "seed": None, "rl": {"n_step": 3}, "map": "royale"})
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
def lock_run_dir(folder: Path) -> Iterator[None]:
    """Keep ``folder`` (made where it is missing) for this process, for the time of the context.

    Raises:
        LockedError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a+") as file:
        for _ in range(_ATTEMPTS):
            if _lock(file, fcntl.LOCK_EX):
                break
            time.sleep(_PAUSE)
        else:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise LockedError(
                f"{folder} is being written by {owner}; wait for it, or train under another --name"
            )
        file.truncate(0)
        now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n")
        file.flush()
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process writes into ``folder`` now."""
    try:
        with (folder / LOCK_FILE).open() as file:
            return not _lock(file, fcntl.LOCK_SH)
    except OSError:
        return False


def _lock(file: IO[str], kind: int) -> bool:
    """Take the lock until the file is closed; False where another process has it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        return True
    return False


def read_progress(path: Path) -> list[dict[str, float]]:
    """The rows of a ``progress.csv``, NaN where a number is missing; none if there is no file.

    A last line that has no end is left out: it is being written, or its writer was killed.
    """
    progress = ProgressTable(path)
    progress.refresh()
    rows = zip(*progress.columns.values(), strict=True)
    return [dict(zip(progress.columns, row, strict=True)) for row in rows]


class ProgressTable:
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

    def refresh(self) -> None:
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


def game_path(folder: Path, iteration: int) -> Path:
    """The game of an iteration in a run's folder of games."""
    return folder / f"iteration-{iteration:06d}.jsonl.gz"


def recorded_games(folder: Path) -> dict[int, Path]:
    """The games in a run's folder of games by iteration, the first one first."""
    found = {}
    for path in folder.glob("iteration-*.jsonl.gz"):
        if number := re.fullmatch(r"iteration-(\d+)\.jsonl\.gz", path.name):
            found[int(number[1])] = path
    return dict(sorted(found.items()))


class GameRecorder:
    """Records games into ``folder`` within their `SHARE` of the time.

    Those after iteration ``resumed_at`` are deleted first: no checkpoint has what they show.
    """

    def __init__(self, folder: Path, record: RecordGame | None, resumed_at: int) -> None:
        self._folder, self._record = folder, record
        self._spent = self._film_at = 0.0
        for iteration, path in recorded_games(folder).items():
            if iteration > resumed_at:
                path.unlink()

    def add(
        self, algorithm: Any, iteration: int, seconds: float, *, last: bool = False
    ) -> bytes | None:
        """Play a game after ``seconds`` of training, if there is time or it is the ``last``.

        Returns a film of it now and then.
        """
        if self._record is None or (self._spent > _RECORDING_TIME_FRACTION * seconds and not last):
            return None
        began = time.monotonic()
        filmed = last or seconds >= _ANIMATION_SPACING * self._film_at
        film = self._record(algorithm, game_path(self._folder, iteration), filmed)
        if film is not None:
            self._film_at = seconds
        self._spent += time.monotonic() - began
        return film
