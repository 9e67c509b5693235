"""What TensorBoard shows of a run before anybody clicks."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path


def cards(folder: Path) -> list[str]:
    """The tags on TensorBoard's first page: it opens the first two groups by the alphabet.

    `test_tensorboard_page` holds this rule against the page itself.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder)).Reload()
    tags = sorted([*board.Tags()["scalars"], *board.Tags()["images"]])
    groups = [list(group) for _, group in groupby(tags, lambda tag: tag.partition("/")[0])]
    return [tag for group in groups[:2] for tag in group]


def check(folder: Path) -> list[str]:
    """Assert that the first page is as promised; returns its curves' names."""
    shown = cards(folder)
    films = [tag for tag in shown if tag.startswith("game/")]
    curves = [tag for tag in shown if tag not in films]
    assert 1 <= len(curves) <= 12
    assert len(films) <= 1
    assert {tag.partition("/")[0] for tag in curves} <= {"curves", "progress"}
    return [tag.partition("/")[2] for tag in curves]
