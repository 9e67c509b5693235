"""One training run as its folder shows it, looked at again and again while it grows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from battlesnake_gym.common import run_dir
from battlesnake_gym.common.run_dir import (
    CSV_FILE,
    GAMES_DIR,
    ITERATION,
    RUN_FILE,
    ProgressTable,
    RunStatus,
)

_RUNNING, _STOPPED, _DONE, DIED, _UNKNOWN = "running", "stopped", "done", "died", "unknown"
"""``died``: its process was killed or failed; ``unknown``: nothing was noted."""

DEATHS = {
    "Snake_hit_wall": ("wall-collision", "hit a wall"),
    "Snake_hit_body": ("snake-collision", "ran into a body"),
    "Snake_was_eaten": ("head-collision", "lost head to head"),
    "Starved": ("out-of-health", "starved"),
    "Forbidden_move": ("snake-self-collision", "back into its neck"),
    "Died_in_hazard": ("hazard", "hazards"),
}
"""Columns that count deaths in a game: the cause that gives the colour, and what it is called."""


class EloWithInterval(NamedTuple):
    """Elo on the ladder with its 95 % interval, and the number of duels."""

    elo: float
    low: float
    high: float
    games: int

    def __str__(self) -> str:
        return f"{self.elo:.0f} ({self.low:.0f} to {self.high:.0f})"


class RungScore(NamedTuple):
    """The share of the points against a rung (a draw is half a win), with its 95 % interval."""

    rung: str
    rate: float
    low: float
    high: float


class RecordedGame(NamedTuple):
    """A recorded game of a run: of which iteration, and after how many minutes of training.

    ``kept`` says whether the checkpoint is there too, and ``path`` is None where only that is.
    """

    iteration: int
    path: Path | None
    minutes: float
    kept: bool


class Run:
    """A run's folder; `look` takes in what has come since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = ProgressTable(path / CSV_FILE)
        self._noted: RunStatus | None = None
        self._held = False
        self.refresh()

    @property
    def name(self) -> str:
        """The folder's."""
        return self.path.resolve().name

    def refresh(self) -> None:
        """Read what has been written since the last look."""
        # The lock first: a run that ends meanwhile has noted that before it lets go.
        self._held = run_dir.is_locked(self.path)
        self._noted = RunStatus.load(self.path)
        self.progress.refresh()

    @property
    def state(self) -> str:
        """Whether it is `_RUNNING`, `_STOPPED` by a user, `_DONE` or `DIED`."""
        if self._held and self.ended is None:  # its process may still write the report
            return _RUNNING
        if self._noted is None:
            return _UNKNOWN
        noted = self._noted.state
        return noted if noted in (_STOPPED, _DONE) else DIED

    @property
    def reason(self) -> str:
        """What it died of, as far as that is known."""
        if self.state != DIED or self._noted is None:
            return ""
        return self._noted.reason or "its process was killed"

    @property
    def settings(self) -> dict[str, str]:
        """All that was set, by name, as text."""
        return run_dir.flatten_settings(self._noted.settings) if self._noted else {}

    @property
    def identity(self) -> dict[str, str]:
        """What was trained: algorithm, network, observation."""
        return run_dir.flatten_settings(self._noted.identity) if self._noted else {}

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages that trained."""
        return self._noted.versions if self._noted else {}

    @property
    def ended(self) -> float | None:
        """When its last process ended, in seconds since 1970."""
        return self._noted.ended_at if self._noted else None

    @property
    def iterations(self) -> int:
        """So far."""
        return int(self._last(ITERATION))

    @property
    def turns(self) -> int:
        """Played so far."""
        return int(self._last("env_steps"))

    @property
    def seconds(self) -> float:
        """Of training so far."""
        return self._last("time_total_s")

    @property
    def progress_fraction(self) -> float | None:
        """How much of what was planned is done, 0 to 1; None where that is not known."""
        plan = self._noted.stop_conditions if self._noted else {}
        parts = [
            done / wanted
            for done, wanted in (
                (self.iterations, plan.get("num_iters")),
                (self.seconds / 60, plan.get("minutes")),
                (self._last("cpu_minutes"), plan.get("cpu_minutes")),
                (self.turns, plan.get("env_steps")),
            )
            if wanted
        ]
        return min(max(parts), 1.0) if parts else None

    @property
    def seconds_left(self) -> float | None:
        """How long a running run trains on, at its pace so far; None where that is not known."""
        part = self.progress_fraction
        if self.state != _RUNNING or not part:
            return None
        return self.seconds * (1 - part) / part

    @property
    def on_ladder(self) -> bool:
        """Whether it is one of those that report their Elo."""
        return "elo" in self.progress.columns

    @property
    def strength(self) -> EloWithInterval | None:
        """Of the strongest weights, those that are kept and exported; None if not measured."""
        row = self._best_row()
        if row is None:
            return None
        columns = ("elo", "elo_low", "elo_high", "elo_games")
        elo, low, high, games = (self.progress.column(name)[row] for name in columns)
        return EloWithInterval(elo, low, high, int(games))

    def win_rates(self) -> list[RungScore]:
        """Of the strongest weights, against the rungs of the ladder that they met."""
        row = self._best_row()
        if row is None:
            return []
        found = []
        for name, numbers in self.progress.columns.items():
            rung = name.removeprefix("score_")
            if rung == name or rung.endswith(("_low", "_high")) or math.isnan(numbers[row]):
                continue
            low, high = (self.progress.column(name + end)[row] for end in ("_low", "_high"))
            found.append(RungScore(rung, numbers[row], low, high))
        return found

    def deaths(self) -> dict[str, Sequence[float]]:
        """Deaths a game by column of `DEATHS`, in each row; none where they are not counted."""
        found = {name: self.progress.column(name) for name in DEATHS if self.progress.column(name)}
        return {name: numbers for name, numbers in found.items() if any(n > 0 for n in numbers)}

    def games(self) -> list[RecordedGame]:
        """Recorded games and checkpoints, the latest first."""
        recorded = run_dir.recorded_games(self.path / GAMES_DIR)
        kept = {
            int(path.name[-6:])
            for path in (self.path / "checkpoints").glob("checkpoint_[0-9]*")
            if path.name[-6:].isdigit()
        }
        iterations, seconds = (self.progress.column(name) for name in (ITERATION, "time_total_s"))
        when = dict(zip(map(int, iterations), seconds, strict=True))
        return [
            RecordedGame(
                number, recorded.get(number), when.get(number, math.nan) / 60, number in kept
            )
            for number in sorted({*recorded, *kept}, reverse=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """What the table shows, for programs."""
        strength = self.strength
        return {
            "run": self.name,
            "state": self.state,
            "why": self.reason,
            "part": self.progress_fraction,
            "seconds_left": self.seconds_left,
            "iterations": self.iterations,
            "turns": self.turns,
            "minutes": self.seconds / 60,
            "strength": None if strength is None else strength._asdict(),
            "settings": self.settings,
        }

    def _best_row(self) -> int | None:
        """The first row with what was measured of the strongest weights."""
        best = self.progress.last("elo_best")
        rows = enumerate(self.progress.column("elo"))
        return next((row for row, elo in rows if abs(elo - best) < 1e-6), None)

    def _last(self, column: str) -> float:
        number = self.progress.last(column)
        return 0.0 if math.isnan(number) else number


class Runs:
    """The runs in a folder, or the one that it is, found anew at each `look`."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ValueError(f"there is no folder {str(folder)!r}; give runs or runs/NAME")
        self.folder = folder
        self._known: dict[Path, Run] = {}

    def refresh(self) -> list[Run]:
        """All of them, those that were written to last first."""
        found = {path.parent for name in (RUN_FILE, CSV_FILE) for path in self._files(name)}
        for path in list(self._known):
            if path in found:
                self._known[path].refresh()
            else:
                del self._known[path]
        for path in found - set(self._known):
            self._known[path] = Run(path)
        return sorted(self._known.values(), key=lambda run: (-_written(run.path), run.name))

    def _files(self, name: str) -> list[Path]:
        return [*self.folder.glob(name), *self.folder.glob(f"*/{name}")]


def differing(runs: Sequence[Run]) -> dict[Path, dict[str, str]]:
    """For each run the settings in which they are not all the same, as it has them.

    One that a run does not have is shown as "-". Of a single run nothing differs.
    """
    known = [run for run in runs if run.settings]
    names = dict.fromkeys(name for run in known for name in run.settings)
    differ = [name for name in names if len({run.settings.get(name, "-") for run in known}) > 1]
    return {
        run.path: {name: run.settings.get(name, "-") for name in differ} if run in known else {}
        for run in runs
    }


def _written(path: Path) -> float:
    return max(
        (file.stat().st_mtime for file in (path / CSV_FILE, path / RUN_FILE) if file.exists()),
        default=0.0,
    )


def state(run: Run) -> str:
    """Its state, and how much of it is done."""
    part = run.progress_fraction
    return run.state if part is None or run.state == _DONE else f"{run.state} {100 * part:.0f} %"


def left(run: Run) -> str:
    """How long it goes on.

    Minutes up to two hours, then hours.
    """
    seconds = run.seconds_left
    if seconds is None:
        return "?" if run.state == _RUNNING else "-"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
