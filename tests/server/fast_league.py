"""A league by a clock that runs as fast as games are played: for tests."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path

from battlesnake_server.arena.tournament import Fixture, Result, Setup, play_fixture

BEGIN = datetime(2026, 3, 2)


class FastClock:
    """Time passes only where a league would wait for it."""

    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> datetime:
        return self.time

    def wait(self, seconds: float, games: Collection[Future[Result]]) -> None:
        if not games:
            assert seconds > 0
            self.time += timedelta(seconds=seconds)

    @property
    def hours(self) -> float:
        """Since the beginning."""
        return (self.time - BEGIN) / timedelta(hours=1)


def play_here(setup: Setup, fixture: Fixture, replays: Path | None) -> Future[Result]:
    """Play a game in this process, at once."""
    future: Future[Result] = Future()
    future.set_result(play_fixture(setup, fixture, replays))
    return future
