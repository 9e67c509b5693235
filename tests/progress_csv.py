"""The curves that a run leaves."""

import csv
from pathlib import Path


def rows(run: Path) -> list[dict[str, str]]:
    """The lines of its ``progress.csv``, one for each iteration; none before the first."""
    if not (run / "progress.csv").is_file():
        return []
    with (run / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))
