"""Games that show what a run has learned, one with a checkpoint; they stay when that is gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARE = 0.02
"""The part of a run's time that playing and drawing them may take."""

FILM_GROWTH = 1.1
"""A film is drawn when so many times the time of the last one has gone by: some 70 in all."""

Record = Callable[[Any, Path, bool], bytes | None]
"""Lets an algorithm play a game into a file; with True it returns the game as a GIF, too."""


def path_of(folder: Path, iteration: int) -> Path:
    """The game of an iteration in a run's folder of games."""
    return folder / f"iteration-{iteration:06d}.jsonl.gz"


def iterations(folder: Path) -> dict[int, Path]:
    """The games in a run's folder of games by iteration, the first one first."""
    found = {}
    for path in folder.glob("iteration-*.jsonl.gz"):
        if number := re.fullmatch(r"iteration-(\d+)\.jsonl\.gz", path.name):
            found[int(number[1])] = path
    return dict(sorted(found.items()))


class Games:
    """Records games into ``folder`` within their `SHARE` of the time.

    Those after iteration ``resumed_at`` are deleted first: no checkpoint has what they show.
    """

    def __init__(self, folder: Path, record: Record | None, resumed_at: int) -> None:
        self._folder, self._record = folder, record
        self._spent = self._film_at = 0.0
        for iteration, path in iterations(folder).items():
            if iteration > resumed_at:
                path.unlink()

    def add(
        self, algorithm: Any, iteration: int, seconds: float, *, last: bool = False
    ) -> bytes | None:
        """Play a game after so many seconds of training, if there is time, or it is the ``last``.

        Returns a film of it now and then.
        """
        if self._record is None or (self._spent > SHARE * seconds and not last):
            return None
        began = time.monotonic()
        filmed = last or seconds >= FILM_GROWTH * self._film_at
        film = self._record(algorithm, path_of(self._folder, iteration), filmed)
        if film is not None:
            self._film_at = seconds
        self._spent += time.monotonic() - began
        return film
