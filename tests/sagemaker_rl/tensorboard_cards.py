"""First page of TensorBoard for a run."""

from itertools import groupby
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def cards(folder: Path) -> list[str]:
    """Return the tags on TensorBoard's first page, which expands the first two groups.

    `test_tensorboard_page` compares this rule with the page itself.
    """
    board = EventAccumulator(str(folder)).Reload()
    tags = sorted([*board.Tags()["scalars"], *board.Tags()["images"]])
    groups = [list(group) for _, group in groupby(tags, lambda tag: tag.partition("/")[0])]
    return [tag for group in groups[:2] for tag in group]


def check(folder: Path) -> list[str]:
    """Check the first page and return the names of its curves."""
    shown = cards(folder)
    films = [tag for tag in shown if tag.startswith("game/")]
    curves = [tag for tag in shown if tag not in films]
    assert 1 <= len(curves) <= 12
    assert len(films) <= 1
    assert {tag.partition("/")[0] for tag in curves} <= {"curves", "progress"}
    return [tag.partition("/")[2] for tag in curves]
