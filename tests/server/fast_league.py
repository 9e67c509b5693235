"""A league clock that runs as fast as games are played."""

from collections.abc import Collection
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path

from battlesnake_server.arena.league import _SteadyClock
from battlesnake_server.arena.tournament import (
    GameResult,
    ScheduledGame,
    TournamentSettings,
    play_scheduled_game,
)

BEGIN = datetime(2026, 3, 2)


class FastClock(_SteadyClock):
    """Time passes only when a league waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.time = BEGIN

    def now(self) -> datetime:
        return self.time

    def wait(self, seconds: float, games: Collection[Future[GameResult]]) -> None:
        if not games:
            assert seconds > 0
            self.time += timedelta(seconds=seconds)

    @property
    def hours(self) -> float:
        """Hours since `BEGIN`."""
        return (self.time - BEGIN) / timedelta(hours=1)


def play_here(
    setup: TournamentSettings, scheduled: ScheduledGame, replays: Path | None
) -> Future[GameResult]:
    """Play a game in this process, immediately."""
    future: Future[GameResult] = Future()
    future.set_result(play_scheduled_game(setup, scheduled, replays))
    return future
