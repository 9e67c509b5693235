"""Read-only views of run directories, which can be refreshed during training."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from battlesnake_gym.common import run_dir
from battlesnake_gym.common.run_dir import (
    CSV_FILE,
    GAMES_DIR,
    ITERATION_COLUMN,
    RUN_FILE,
    ProgressTable,
    RunStatus,
    list_names,
)
from battlesnake_gym.common.untrusted_text import path_text

_RUNNING, _STOPPED, _DONE, DIED, _UNKNOWN = "running", "stopped", "done", "died", "unknown"
"""States of a run.

``died``: the process failed or was killed. ``unknown``: the run has no readable status file.
"""

CAUSES_BY_COLUMN = {
    "Snake_hit_wall": ("wall-collision", "hit a wall"),
    "Snake_hit_body": ("snake-collision", "ran into a body"),
    "Snake_was_eaten": ("head-collision", "lost head to head"),
    "Starved": ("out-of-health", "starved"),
    "Forbidden_move": ("snake-self-collision", "turned back into its neck"),
    "Died_in_hazard": ("hazard", "hazards"),
}
"""Cause of elimination and label, by column with eliminations per game.

The cause of elimination selects the color.
"""


_ELO_COLUMNS = {"best": "elo_best", "latest": "elo"}
"""Columns of the progress file with the Elo, keyed by the weights that were measured."""


class _EloWithInterval(NamedTuple):
    """Elo on the ladder with its 95% confidence interval, and the number of duels.

    The measured weights are the ``best`` weights, or the ``latest`` weights while no measurement
    has enough duels to select the best.
    """

    elo: float
    ci_low: float
    ci_high: float
    games: int
    weights: str = "best"

    def __str__(self) -> str:
        return f"{self.elo:.0f} ({self.ci_low:.0f} to {self.ci_high:.0f})"


class _RungScore(NamedTuple):
    """Score against a rung in [0, 1] with its 95% confidence interval.

    A draw counts half.
    """

    rung: str
    score: float
    ci_low: float
    ci_high: float


class RecordedGame(NamedTuple):
    """Recorded game of a run, or a checkpoint without a game.

    Attributes:
        iteration: Iteration after which the game was played.
        path: File of the game, or None if there is only a checkpoint.
        minutes: Minutes of training before the game.
        kept: Whether the checkpoint still exists.
    """

    iteration: int
    path: Path | None
    minutes: float
    kept: bool


class RunView:
    """View of a run directory.

    `refresh` reads the data written since the last refresh.

    Attributes:
        path: The run directory.
        progress: The progress table.
        status: Status of the run; its state is ``unknown`` without a readable status file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = ProgressTable(path / CSV_FILE)
        self.refresh()

    @property
    def name(self) -> str:
        """Name of the directory."""
        return path_text(self.path.resolve().name)

    @property
    def location(self) -> str:
        """Path of the directory as text."""
        return path_text(self.path)

    def refresh(self) -> None:
        """Read the data written to the run directory since the last refresh."""
        # Check the lock before the status, because a run writes the final status before the release
        # of the lock.
        self._locked = run_dir.is_locked(self.path)
        found = RunStatus.load(self.path)
        self.status = found or RunStatus(_UNKNOWN, 0.0)
        self._damage = ""
        if found is None and RUN_FILE in list_names(self.path):
            self._damage = f"{RUN_FILE} cannot be read; delete or repair the file"
        try:
            self.progress.refresh()
        except (OSError, csv.Error) as error:
            self._damage = f"{CSV_FILE} cannot be read: {error}"

    @property
    def state(self) -> str:
        """State of the run: ``running``, ``stopped``, ``done``, ``died`` or ``unknown``.

        The state ``stopped`` means that a user stopped the run.
        """
        # A process may write the final status and hold the lock.
        if self._locked and self.status.ended_at is None:
            return _RUNNING
        state = self.status.state
        return state if state in (_STOPPED, _DONE, _UNKNOWN) else DIED

    @property
    def reason(self) -> str:
        """Reason why the run died, description of a damaged file, or ""."""
        if self.state != DIED or self._damage:
            return self._damage
        return self.status.reason or "its process was killed"

    @property
    def settings(self) -> dict[str, str]:
        """All settings as text, keyed by name."""
        return run_dir.flatten_settings(self.status.settings)

    @property
    def identity(self) -> dict[str, str]:
        """Algorithm, network and observation as text, keyed by name."""
        return run_dir.flatten_settings(self.status.identity)

    @property
    def iterations(self) -> int:
        """Number of completed iterations."""
        return int(self._last_value(ITERATION_COLUMN))

    @property
    def env_steps(self) -> int:
        """Number of completed env steps."""
        return int(self._last_value("env_steps"))

    @property
    def seconds(self) -> float:
        """Training time so far, in seconds."""
        return self._last_value("time_total_s")

    @property
    def progress_fraction(self) -> float | None:
        """Completed fraction of the planned training in [0, 1], or None if unknown."""
        conditions = self.status.stop_conditions
        fractions = [
            done / wanted
            for done, wanted in (
                (self.iterations, conditions.get("num_iters")),
                (self.seconds / 60, conditions.get("minutes")),
                (self._last_value("cpu_minutes"), conditions.get("cpu_minutes")),
                (self._last_value("driver_cpu_minutes"), conditions.get("driver_cpu_minutes")),
                (self.env_steps, conditions.get("env_steps")),
            )
            if wanted
        ]
        return min(max(fractions), 1.0) if fractions else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining time of an active run in seconds, or None if unknown."""
        fraction = self.progress_fraction
        if self.state != _RUNNING or not fraction:
            return None
        return self.seconds * (1 - fraction) / fraction

    @property
    def state_text(self) -> str:
        """State of the run as text, with the completed percentage of the training."""
        fraction = self.progress_fraction
        if fraction is None or self.state == _DONE:
            return self.state
        return f"{self.state} {100 * fraction:.0f}%"

    @property
    def time_left_text(self) -> str:
        """Estimated remaining time as text, in minutes below two hours, otherwise in hours."""
        seconds = self.seconds_left
        if seconds is None:
            return "?" if self.state == _RUNNING else "-"
        return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

    @property
    def on_ladder(self) -> bool:
        """Whether the run reports its Elo on the ladder."""
        return "elo" in self.progress.columns

    @property
    def strength(self) -> _EloWithInterval | None:
        """Elo of the best or latest weights, or None if the run has no measurement.

        The policy that the run exports has the best weights.
        """
        for weights, name in _ELO_COLUMNS.items():
            row = self._find_row(name)
            elo, low, high, games = (
                self.progress.last(name + end)
                if name + end in self.progress.columns or row is None
                else self._cell("elo" + end, row)  # An earlier version trained this run.
                for end in ("", "_low", "_high", "_games")
            )
            if not any(map(math.isnan, (elo, low, high, games))):
                return _EloWithInterval(elo, low, high, int(games), weights)
        return None

    def rung_scores(self) -> list[_RungScore]:
        """Return the scores of the measured weights against the rungs of the ladder."""
        strength = self.strength
        row = self._find_row(_ELO_COLUMNS[strength.weights]) if strength else None
        if row is None:
            return []
        found = []
        for name in self.progress.columns:
            rung = name.removeprefix("score_")
            if rung == name or rung.endswith(("_low", "_high")):
                continue
            score, low, high = (self._cell(name + end, row) for end in ("", "_low", "_high"))
            if not any(map(math.isnan, (score, low, high))):
                found.append(_RungScore(rung, score, low, high))
        return found

    def eliminations(self) -> dict[str, Sequence[float]]:
        """Return the eliminations per game in each row, by column of `CAUSES_BY_COLUMN`."""
        found = {
            name: self.progress.column(name)
            for name in CAUSES_BY_COLUMN
            if self.progress.column(name)
        }
        return {name: numbers for name, numbers in found.items() if any(n > 0 for n in numbers)}

    def games(self) -> list[RecordedGame]:
        """Return recorded games and checkpoints, latest first."""
        recorded = run_dir.find_recorded_games(self.path / GAMES_DIR)
        kept = {
            int(found[1])
            for name in list_names(self.path / "checkpoints")
            if (found := re.fullmatch(r"checkpoint_(\d{6,18})", name))
        }
        iterations, seconds = (
            self.progress.column(name) for name in (ITERATION_COLUMN, "time_total_s")
        )
        when = dict(zip(iterations, seconds, strict=False))  # A column may be missing.
        return [
            RecordedGame(
                number, recorded.get(number), when.get(number, math.nan) / 60, number in kept
            )
            for number in sorted({*recorded, *kept}, reverse=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Convert the run to a dict of JSON values, for the table of runs."""
        strength = self.strength
        return {
            "run": self.name,
            "state": self.state,
            "reason": self.reason,
            "progress_fraction": self.progress_fraction,
            "seconds_left": self.seconds_left,
            "iterations": self.iterations,
            "env_steps": self.env_steps,
            "training_minutes": self.seconds / 60,
            "strength": None if strength is None else strength._asdict(),
            "settings": self.status.settings,
        }

    def _find_row(self, column: str) -> int | None:
        """Return the index of the first row whose Elo is the last value of ``column``, or None."""
        wanted = self.progress.last(column)
        rows = enumerate(self.progress.column("elo"))
        return next((row for row, elo in rows if abs(elo - wanted) < 1e-6), None)

    def _cell(self, column: str, row: int) -> float:
        """Return a number of the progress table, or NaN if the column is missing."""
        numbers = self.progress.column(column)
        return numbers[row] if numbers else math.nan

    def _last_value(self, column: str) -> float:
        """Return the last value of a column, or 0 if the column has no value."""
        number = self.progress.last(column)
        return 0.0 if math.isnan(number) else number


class RunsView:
    """Views of all runs in a directory, or of a single run directory."""

    def __init__(self, directory: Path, may_be_missing: bool = False) -> None:
        if not directory.is_dir() and not may_be_missing:
            raise ValueError(f"there is no directory {str(directory)!r}; give runs or runs/NAME")
        self.directory = directory
        self._views: dict[Path, RunView] = {}

    def refresh(self) -> list[RunView]:
        """Refresh all runs and return their views, the most recently written run first."""
        names = list_names(self.directory)
        candidates = [self.directory, *(self.directory / name for name in names)]
        written = {path: _last_write_time(path) for path in candidates}
        found = {path for path, last in written.items() if last is not None}
        for path in list(self._views):
            if path in found:
                self._views[path].refresh()
            else:
                del self._views[path]
        for path in found - set(self._views):
            self._views[path] = RunView(path)
        return sorted(self._views.values(), key=lambda run: (-(written[run.path] or 0.0), run.name))


def differing_settings(runs: Sequence[RunView]) -> dict[Path, dict[str, str]]:
    """Return the settings in which the runs differ, the algorithm first, by path of the run.

    A missing setting is shown as "-". The result is empty for a single run.
    """
    known = [run for run in runs if run.settings]
    names = dict.fromkeys(name for run in known for name in ("algorithm", *run.settings))
    differ = [name for name in names if len({run.settings.get(name, "-") for run in known}) > 1]
    return {
        run.path: {name: run.settings.get(name, "-") for name in differ} if run in known else {}
        for run in runs
    }


def _last_write_time(path: Path) -> float | None:
    """Return the Unix time of the last write in seconds, or None if there is no run."""
    times = []
    for name in (CSV_FILE, RUN_FILE):
        with suppress(OSError):
            times.append((path / name).stat().st_mtime)
    return max(times, default=None)
