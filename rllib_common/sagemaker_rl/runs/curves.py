"""Curves of a run, in ``progress.csv`` and TensorBoard.

A resumed run extends the existing curves.

TensorBoard expands the experiment's main curves (group ``curves``) and an animated game
(``game``). If games cannot be shown, TensorBoard expands the number of env steps (``progress``)
instead. The group ``rllib`` contains all other results and is collapsed. Only the HPARAMS tab
shows the hyperparameters.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter  # type: ignore[import-untyped]
from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboardX.summary import hparams, scalar  # type: ignore[import-untyped]

from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.run_dir import CSV_FILE, ITERATION_COLUMN, read_progress

_MAX_MAIN_CURVES = 12
"""Maximum number of curves on TensorBoard's first page."""

_MAIN_TAG, _GAME_TAG, _PROGRESS_TAG, _RLLIB_TAG = "curves", "game", "progress", "rllib"
"""Names of TensorBoard's groups.

TensorBoard sorts the groups and expands the first two groups.
"""

ENV_STEPS_RESULT = "env_runners/num_env_steps_sampled_lifetime"
"""RLlib result with the number of env steps, shown in the group `_PROGRESS_TAG`.

If there is no group `_GAME_TAG`, TensorBoard expands the group `_PROGRESS_TAG`.
"""

CSV_COLUMNS = {
    ITERATION_COLUMN: ITERATION_COLUMN,
    "time_total_s": "time_total_s",
    "env_steps": ENV_STEPS_RESULT,
    "episode_reward_mean": "env_runners/episode_return_mean",
    "episode_len_mean": "env_runners/episode_len_mean",
    "num_episodes": "env_runners/num_episodes",
    "episode_reward_min": "env_runners/episode_return_min",
    "episode_reward_max": "env_runners/episode_return_max",
    "episode_len_min": "env_runners/episode_len_min",
    "episode_len_max": "env_runners/episode_len_max",
    "loss": "loss",
    "env_steps_per_s": "env_steps_per_s",
    "transitions_per_s": "transitions_per_s",
    "cpu_percent": "cpu_percent",
    "driver_cpu_minutes": "driver_cpu_minutes",
}
"""RLlib results of the ``progress.csv`` columns that every experiment has.

The keys are column names. `training_run.TrainingRun` computes the last five columns: the mean loss
of all learners, env steps and transitions per second of wall-clock time, CPU utilization, and the
CPU time of the driver since the start of the run. The other four values cover one iteration. The
CPU utilization includes all processes of the driver's machine.
"""

_ELO, _ELO_X_RESULT = "elo", "elo_cpu_minutes"
"""Results of the ladder evaluation: Elo, and CPU minutes of training.

TensorBoard shows Elo over CPU seconds in the group `_PROGRESS_TAG`.
"""

_LADDER_PREFIXES = (_ELO, "ladder_score", "score/", "score_low/", "score_high/")
"""Key prefixes of the results of the last ladder evaluation."""

_CONFIG_PREFIX = "config/"
"""Key prefix of the configuration that RLlib repeats in each result."""

_COPY_INTERVAL_S = 30.0
"""Interval between two copies of TensorBoard's file, in seconds.

The copies are in the upload directory.
"""


def flatten(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the key and value of each number in the nested mapping ``results``.

    The key joins the nested keys by slashes.
    """
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        elif not isinstance(value, bool | str):
            try:
                yield f"{prefix}{key}", float(value)
            except (TypeError, ValueError):
                continue


class Curves:
    """Writer of ``progress.csv`` and of the TensorBoard file of a run.

    For each iteration, the writer adds one CSV row, and one TensorBoard point per number.

    Args:
        folder: Run directory.
        columns: Result keys, as `flatten` yields them, keyed by CSV column. The cell of a missing
            number is empty.
        resumed_at: Iteration of the resumed checkpoint, or 0. Rows of later iterations are deleted,
            because the checkpoint does not contain these iterations.
        main_curves: Result keys of TensorBoard's main curves, keyed by curve name. The maximum
            number is `_MAX_MAIN_CURVES`, including the curve of `ENV_STEPS_RESULT`.
        settings: The hyperparameters.
        intermediate: Directory that receives a copy of TensorBoard's file every `_COPY_INTERVAL_S`
            seconds. ``sagemaker-training`` uploads closed files in this directory while the job
            runs.
    """

    def __init__(
        self,
        folder: Path,
        columns: Mapping[str, str],
        resumed_at: int,
        *,
        main_curves: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        intermediate: Path | None = None,
    ) -> None:
        self._tags = {ENV_STEPS_RESULT: f"{_PROGRESS_TAG}/env_steps"} | {
            key: f"{_MAIN_TAG}/{name}"
            for name, key in (main_curves or {}).items()
            if key != ENV_STEPS_RESULT
        }
        if len(self._tags) > _MAX_MAIN_CURVES:
            raise ValueError(
                f"there are {len(self._tags)} main curves; use at most {_MAX_MAIN_CURVES}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._resumed_at = resumed_at
        self._path = folder / CSV_FILE
        self._columns = dict(columns)
        rows = [row for row in read_progress(self._path) if row[ITERATION_COLUMN] <= resumed_at]

        def write(draft: Path) -> None:
            with draft.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(self._columns)
                writer.writerows(
                    [_format_number(row.get(name, math.nan)) for name in self._columns]
                    for row in rows
                )

        write_atomically(self._path, write)
        board = folder / "tensorboard"
        if resumed_at == 0:
            shutil.rmtree(board, ignore_errors=True)
        board.mkdir(exist_ok=True)
        # File names contain the time in seconds; the suffix distinguishes quick restarts. This
        # class does not use tensorboardX's thread. On a full disk, the thread would end, and a
        # writer would then wait forever.
        self._board = EventsWriter(str(board / "events"), f".{resumed_at}")
        self._intermediate = intermediate and intermediate / board.name
        self._copied = -math.inf
        self._measured_at = math.nan
        start = SessionLog(status=SessionLog.START)
        self._write_event(resumed_at + 1, session_log=start)
        # The START event makes TensorBoard drop Elo points whose CPU seconds exceed ``resumed_at``.
        for row in rows:
            self._add_elo(row, later_than=resumed_at)
        given = {name: _to_hparam(value) for name, value in (settings or {}).items()}
        experiment, began, self._end = hparams(given, dict.fromkeys(self._tags.values(), 0.0))
        for summary in (experiment, began):
            self._write_event(resumed_at, summary=summary)

    def add(self, results: Mapping[str, Any]) -> None:
        """Append the results of one iteration."""
        numbers = dict(flatten(results))
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(
                _format_number(numbers.get(key, math.nan)) for key in self._columns.values()
            )
        # Every iteration repeats the results of the last ladder evaluation.
        is_repeated = numbers.get(_ELO_X_RESULT) == self._measured_at
        skipped = (_CONFIG_PREFIX, *(_LADDER_PREFIXES if is_repeated else ()))
        for key, number in numbers.items():
            if math.isfinite(number) and not key.startswith(skipped):
                tag = self._tags.get(key, f"{_RLLIB_TAG}/{key}")
                self._write_event(int(numbers[ITERATION_COLUMN]), summary=scalar(tag, number))
        self._add_elo(numbers)
        self._board.flush()
        if time.monotonic() - self._copied > _COPY_INTERVAL_S:
            self._copy_to_intermediate()

    def _add_elo(self, numbers: Mapping[str, float], later_than: int = 0) -> None:
        """Write a new Elo at its CPU seconds, if the CPU seconds exceed ``later_than``."""
        at = numbers.get(_ELO_X_RESULT, math.nan)
        if math.isfinite(at) and at != self._measured_at:
            self._measured_at = at
            if (seconds := round(60 * at)) > later_than:
                tag = f"{_PROGRESS_TAG}/{_ELO}_over_cpu_seconds"
                self._write_event(seconds, summary=scalar(tag, numbers[_ELO]))

    def add_animation(self, gif: bytes, iteration: int) -> None:
        """Write an animated GIF of a game to TensorBoard."""
        width, height = struct.unpack("<HH", gif[6:10])
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
        value = Summary.Value(tag=f"{_GAME_TAG}/against_itself", image=image)
        self._write_event(iteration, summary=Summary(value=[value]))
        self._board.flush()

    def _copy_to_intermediate(self) -> None:
        """Copy TensorBoard's file to the directory that SageMaker uploads."""
        if self._intermediate is not None:
            self._intermediate.mkdir(parents=True, exist_ok=True)
            for path in (self._path.parent / self._intermediate.name).glob(f"*.{self._resumed_at}"):
                shutil.copy(path, self._intermediate)
            self._copied = time.monotonic()

    def _write_event(self, step: int, **content: Any) -> None:
        """Write one TensorBoard event."""
        self._board.write_event(Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Close the TensorBoard file; if the disk is full, the last events are lost."""
        with contextlib.suppress(OSError):
            self._write_event(0, summary=self._end)
            self._board.close()
            self._copy_to_intermediate()


def _to_hparam(value: Any) -> bool | float | str | None:
    """Convert a hyperparameter for TensorBoard's HPARAMS tab.

    Containers and infinite numbers become JSON text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return json.dumps(value, default=str)


def _format_number(number: float) -> str:
    """Format a number for a CSV cell; NaN becomes an empty cell."""
    return "" if math.isnan(number) else f"{number:.10g}"
