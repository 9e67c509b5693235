"""Live games, whose pages wait for the next turn."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_server import replay_json

MAX_FINISHED_GAMES = 16
"""Maximum number of finished games in memory.

Finished games remain in memory while the database stores the games.
"""


class GameTimeline:
    """A game that grows, with the frames of its turns.

    Attributes:
        replay: Recording of the game.
        over: Whether the game is over.
        problem: Message that the page shows at the end of the game, or "".
    """

    def __init__(self, first: Board, turns: Iterable[Turn] = ()) -> None:
        self.replay = Replay(first)
        self.over = False
        self.problem = ""
        self._frames: list[dict[str, Any]] = []
        self._released = False
        self._changed = threading.Condition()
        for turn in turns:
            self.add_turn(turn)

    def add_turn(self, turn: Turn) -> None:
        """Append a turn."""
        frame = replay_json.frame(self.replay.last, turn)
        with self._changed:
            self.replay.append_turn(turn)
            self._frames.append(frame)
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
                lambda: len(self._frames) >= length or self.over or self._released, seconds
            )

    def release(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def last_position(self) -> dict[str, Any]:
        """Return the last position, in the format of `replay_json.position`."""
        with self._changed:
            return replay_json.position(self.replay.last)

    def to_dict(self, since: int = 0) -> dict[str, Any]:
        """Return the game in the player's JSON format, with frames from index ``since``.

        `battlesnake_server.replay_viewer.frame_stream` describes the format. ``from`` is the index
        of the first frame.
        """
        with self._changed:
            frames = [*self._frames[since:], replay_json.frame(self.replay.last)]
            return {
                **replay_json.replay_header(self.replay),
                "from": min(since, len(self._frames)),
                "frames": frames,
                "over": self.over,
                "problem": self.problem,
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
