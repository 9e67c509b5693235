"""Named experiments: files of hyperparameters in ``rllib_src/experiments``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "experiments"


def names() -> list[str]:
    """The experiments there are."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name: str) -> dict[str, Any]:
    """The hyperparameters of an experiment, by name.

    Raises:
        ValueError: there is no such experiment.
    """
    if name not in names():
        raise ValueError(f"unknown experiment {name!r}; choose one of {', '.join(names())}")
    values: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return values
