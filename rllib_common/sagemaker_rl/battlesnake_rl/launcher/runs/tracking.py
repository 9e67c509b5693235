"""MLflow and Weights & Biases, through Ray's own integrations (``ray.air.integrations``).

Where results go is set as everywhere: for MLflow by ``MLFLOW_TRACKING_URI`` and
``MLFLOW_EXPERIMENT_NAME``, for W&B by ``wandb login``, ``WANDB_PROJECT`` and ``WANDB_MODE``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from battlesnake_gym.common.nearest import unknown
from battlesnake_rl.launcher.runs import run_folder

PROJECT = "battlesnake-gym"
"""MLflow's experiment and the project at W&B, where the environment names none."""


class MLflow:
    """One run at MLflow."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str]) -> None:
        from ray.air.integrations.mlflow import setup_mlflow

        self._mlflow = setup_mlflow(
            dict(settings),
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI"),
            experiment_name=os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT),
            run_name=name,
            create_experiment_if_not_exists=True,
        )

    def log(self, numbers: Mapping[str, float], iteration: int) -> None:
        """Add the numbers of an iteration."""
        self._mlflow.log_metrics(dict(numbers), step=iteration)

    def finish(self, *, failed: bool) -> None:
        """End the run there."""
        self._mlflow.end_run("FAILED" if failed else "FINISHED")


class WandB:
    """One run at Weights & Biases; its files are kept in the run's folder."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str]) -> None:
        from ray.air.integrations.wandb import setup_wandb

        self._run = setup_wandb(
            dict(settings),
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            dir=str(folder),
        )

    def log(self, numbers: Mapping[str, float], iteration: int) -> None:
        """Add the numbers of an iteration."""
        self._run.log(dict(numbers), step=iteration)

    def finish(self, *, failed: bool) -> None:
        """End the run there."""
        self._run.finish(exit_code=int(failed))


TRACKERS: dict[str, Callable[[str, Path, Mapping[str, str]], MLflow | WandB]] = {
    "mlflow": MLflow,
    "wandb": WandB,
}


def names(track: str | None) -> list[str]:
    """What is asked for, separated by commas; raises ``ValueError`` where it cannot be had.

    >>> names("mlflow,wandb")
    ['mlflow', 'wandb']
    """
    found = [name.strip() for name in (track or "").split(",") if name.strip()]
    for name in found:
        if name not in TRACKERS:
            raise ValueError(unknown("track", name, list(TRACKERS)))
    return found


def check(track: str | None) -> None:
    """Refuse what is not known or not installed, before any work.

    Raises:
        ValueError: saying what, and what to do.
    """
    for name in names(track):
        if find_spec(name) is None:
            raise ValueError(
                f"track is {name}, and the package {name!r} is missing; install the extra "
                "tracking: pip install '.[tracking]' in a clone"
            )


class Tracking:
    """All trackers of a run for the time of a context; ``named`` maps names to keys of results."""

    def __init__(
        self,
        track: str | None,
        name: str,
        folder: Path,
        settings: Mapping[str, Any],
        named: Mapping[str, str],
    ) -> None:
        self._named = named
        plain = run_folder.plain(settings)
        self._trackers = [TRACKERS[one](name, folder, plain) for one in names(track)]

    def __enter__(self) -> Self:
        return self

    def log(self, numbers: Mapping[str, float], iteration: int) -> None:
        """Add the named numbers of an iteration's flat results, as far as they are known."""
        known = {
            name: numbers[key]
            for name, key in self._named.items()
            if math.isfinite(numbers.get(key, math.nan))
        }
        for tracker in self._trackers:
            tracker.log(known, iteration)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for tracker in self._trackers:
            tracker.finish(failed=error is not None)
