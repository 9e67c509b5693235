"""Games as far as they have come: those being played now, and those that were kept."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_server import replay_json

NUM_FINISHED_KEPT = 16
"""Games that are over and stay in memory, until the database has them for sure."""


class GameTimeline:
    """One game from its first position to its latest; grows while it is played.

    ``boards`` are its positions, ``turns`` what happened between them.
    """

    def __init__(self, first: Board, turns: Iterable[Turn] = (), *, over: bool = False) -> None:
        self.boards = [first.copy()]
        self.turns: list[Turn] = []
        self.over = False
        self._released = False
        self._changed = threading.Condition()
        for turn in turns:
            self.add(turn)
        if over:
            self.end()

    def at(self, turn: int) -> Board:
        """A copy of the board at this turn; raises ``ValueError`` where there is none."""
        first, last = self.boards[0].turn, self.boards[-1].turn
        if not first <= turn <= last:
            raise ValueError(f"turn must be between {first} and {last}, got {turn}")
        return self.boards[turn - first].copy()

    def add(self, turn: Turn) -> None:
        """Note a turn that was played."""
        board = self.boards[-1].copy()
        turn.play(board)
        with self._changed:
            self.turns.append(turn)
            self.boards.append(board)
            self._changed.notify_all()

    def end(self) -> None:
        """Note that no turn will follow."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def wait(self, length: int, seconds: float) -> None:
        """Return once the game has more than ``length`` positions or is over, or after a while."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self.boards) > length or self.over or self._released, seconds
            )

    def release(self) -> None:
        """End all waiting."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def data(self, since: int = 0) -> dict[str, Any]:
        """The game as the player in the browser reads it, its frames from index ``since`` on.

        As a piece of `battlesnake_server.replay_viewer.frame_stream`, with ``from`` (the first frame's index) and
        ``over``.
        """
        with self._changed:
            boards, turns, over = self.boards[:], self.turns[:], self.over
        following = [*turns, None]
        deaths = [
            {"turn": snake.eliminated_on, "id": snake.id, "cause": snake.eliminated_cause}
            for snake in boards[-1].snakes
            if not snake.alive
        ]
        return {
            **replay_json.header(boards[0]),
            "deaths": sorted(deaths, key=lambda death: int(death["turn"])),
            "from": since,
            "frames": [
                replay_json.frame(boards[i], following[i]) for i in range(since, len(boards))
            ],
            "over": over,
            "more": False,
        }


class Broadcast:
    """The games that are being played, by id, and the last ones that were."""

    def __init__(self) -> None:
        self._courses: dict[str, GameTimeline] = {}
        self._lock = threading.Lock()

    def announce(self, game_id: str, news: Board | Turn | None) -> None:
        """Take note of a game's first position, of a turn, or (None) of its end."""
        if isinstance(news, Board):
            with self._lock:
                self._forget_old()
                self._courses[game_id] = GameTimeline(news)
            return
        course = self.find(game_id)
        if course is None:
            return
        if news is None:
            course.end()
        else:
            course.add(news)

    def find(self, game_id: str) -> GameTimeline | None:
        """The game with this id, if it is or was on lately."""
        with self._lock:
            return self._courses.get(game_id)

    def running(self) -> list[tuple[str, GameTimeline]]:
        """The games that are on now, the latest first."""
        with self._lock:
            on = [(game_id, course) for game_id, course in self._courses.items() if not course.over]
        return on[::-1]

    def close(self) -> None:
        """End all waiting for a turn."""
        for _, course in self.running():
            course.release()

    def _forget_old(self) -> None:
        over = [game_id for game_id, course in self._courses.items() if course.over]
        for game_id in over[:-NUM_FINISHED_KEPT]:
            del self._courses[game_id]


def recorded(path: Path) -> GameTimeline:
    """The game in a replay file; raises `ReplayError` or ``OSError`` where it cannot be read."""
    status = path.stat()
    return _recorded(path, status.st_mtime, status.st_size)


@functools.lru_cache(maxsize=32)
def _recorded(path: Path, modified: float, size: int) -> GameTimeline:
    """``modified`` and ``size`` let a changed file be read again."""
    replay = Replay.load(path)
    return GameTimeline(replay.first, replay.turns, over=True)
