"""Named experiments: files of hyperparameters in ``experiment_files``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from battlesnake_gym.nearest import unknown

FOLDER = Path(__file__).with_name("experiment_files")


def names() -> list[str]:
    """The experiments there are."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name: str) -> dict[str, Any]:
    """The hyperparameters of an experiment, by name.

    Raises:
        ValueError: there is no such experiment.
    """
    if name not in names():
        raise ValueError(unknown("experiment", name, names()))
    values: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return values
