"""Timelines of live and recorded games."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_server import replay_json
from battlesnake_server.file_cache import cache_by_file

MAX_FINISHED_GAMES = 16
"""Maximum number of finished games in memory.

Finished games remain in memory while the database stores the games.
"""


class GameTimeline:
    """Positions and turns of a live or recorded game.

    Attributes:
        boards: Positions of the game.
        turns: Turns between the positions.
        over: Whether the game is over.
        problem: Message that the page shows at the end of the game, or "".
    """

    def __init__(self, first: Board, turns: Iterable[Turn] = (), *, over: bool = False) -> None:
        self.boards = [first.copy()]
        self.turns: list[Turn] = []
        self.over = False
        self.problem = ""
        self._released = False
        self._changed = threading.Condition()
        for turn in turns:
            self.add_turn(turn)
        if over:
            self.end()

    def boards_until(self, turn: int, count: int) -> list[Board]:
        """Return up to ``count`` consecutive positions, of which the last is on turn ``turn``.

        The caller must not change the positions.

        Raises:
            ValueError: If the game does not contain the turn.
        """
        first, last = self.boards[0].turn, self.boards[-1].turn
        if not first <= turn <= last:
            raise ValueError(f"turn must be between {first} and {last}, got {turn}")
        end = turn - first + 1
        return self.boards[max(0, end - count) : end]

    def add_turn(self, turn: Turn) -> None:
        """Append a turn."""
        board = self.boards[-1].copy()
        turn.play(board)
        with self._changed:
            self.turns.append(turn)
            self.boards.append(board)
            self._changed.notify_all()

    def end(self) -> None:
        """Mark the game as over."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def wait(self, length: int, seconds: float) -> None:
        """Wait for another position, the end of the game, or the timeout.

        Args:
            length: Number of positions that the caller has received.
            seconds: Timeout in seconds.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: len(self.boards) > length or self.over or self._released, seconds
            )

    def release(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def to_dict(self, since: int = 0) -> dict[str, Any]:
        """Return the game in the player's JSON format, with frames from index ``since``.

        `battlesnake_server.replay_viewer.frame_stream` describes the format. ``from`` is the index
        of the first frame.
        """
        with self._changed:
            boards, turns, over = self.boards[:], self.turns[:], self.over
            problem = self.problem
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
            "problem": problem,
            "more": False,
        }


class LiveGames:
    """Live games and recently finished games, by id."""

    def __init__(self) -> None:
        self._timelines: dict[str, GameTimeline] = {}
        self._lock = threading.Lock()

    def publish_event(self, game_id: str, event: Board | Turn | None) -> None:
        """Publish an event of a live game.

        Args:
            game_id: Id of the game.
            event: First position, turn, or None at the end of the game.
        """
        if isinstance(event, Board):
            with self._lock:
                self._discard_finished_games()
                self._timelines[game_id] = GameTimeline(event)
            return
        timeline = self.find(game_id)
        if timeline is None:
            return
        if event is None:
            timeline.end()
        else:
            timeline.add_turn(event)

    def find(self, game_id: str) -> GameTimeline | None:
        """Return the live or recently finished game with this id, or None."""
        with self._lock:
            return self._timelines.get(game_id)

    def set_problem(self, game_id: str, problem: str) -> None:
        """Set the message that a game's page shows at the end of the game."""
        if (timeline := self.find(game_id)) is not None:
            timeline.problem = problem

    def live_games(self) -> list[tuple[str, GameTimeline]]:
        """Return the ids and timelines of the live games, latest game first."""
        with self._lock:
            live = [
                (game_id, timeline)
                for game_id, timeline in self._timelines.items()
                if not timeline.over
            ]
        return live[::-1]

    def close(self) -> None:
        """Wake all threads that wait for a turn."""
        for _, timeline in self.live_games():
            timeline.release()

    def _discard_finished_games(self) -> None:
        """Delete the oldest finished games beyond `MAX_FINISHED_GAMES`."""
        over = [game_id for game_id, timeline in self._timelines.items() if timeline.over]
        for game_id in over[:-MAX_FINISHED_GAMES]:
            del self._timelines[game_id]


@cache_by_file(32)
def load_recorded_game(path: Path) -> GameTimeline:
    """Return the timeline of the game in a replay file.

    Raises:
        ReplayError: If the file is damaged.
        OSError: If the file cannot be read.
    """
    replay = Replay.load(path)
    return GameTimeline(replay.first, replay.turns, over=True)
