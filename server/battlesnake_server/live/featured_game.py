"""The featured game on the snake's own page: the current game, or the last game."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.elimination_tracker import ASSUMED_CAUSE
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Turn
from battlesnake_gym.rules import MOVES, Settings, Snake
from battlesnake_gym.snakes import Decision, Strategy, StrategyFactory
from battlesnake_heuristics.builtin_snakes import hungry_snake
from battlesnake_heuristics.rating.match import MatchSettings, play_game
from battlesnake_server import replay_json
from battlesnake_server.live.fallback import is_normal_size
from battlesnake_server.live.sessions import Key
from battlesnake_server.strategy_loader import example_board_size

_TAKEOVER_IDLE_S = 10.0
"""Idle time in seconds after which another game may replace an unfinished game."""

WARMUP_GAME_ID = "before all games"
"""Id of the game with the warm-up move of AWS Lambda, which the page does not show."""

_MAX_FRAME_BYTES = 1 << 22
"""Maximum size of the stored frames of one game, in bytes."""


class FeaturedGame:
    """Featured game, stored for the snake's page.

    The class is thread-safe. The page shows decisions only after the game, because opponents can
    also read the page.

    Args:
        factory: Function that builds the strategy of the example game.
        view_radius: View radius in the example game; None for no limit.
    """

    def __init__(self, factory: StrategyFactory, view_radius: int | None = None) -> None:
        # A snake without games plays an example game against `hungry` for its page.
        self.example_spec = GameSpec(
            2,
            *example_board_size(factory),
            settings=Settings(view_radius=view_radius),
            max_turns=200,
        )
        self._factory: StrategyFactory | None = factory  # The factory is None after the first game.
        self._lock = threading.Lock()
        self.key: Key | None = None
        # The version differs after a restart, so that pages notice a restarted server.
        self._version = time.time_ns() // 1_000_000
        self._over = True
        self._last_move_at = self._size = 0.0
        self._turn = 0  # of the last frame
        self._header: dict[str, Any] = {}
        self._snakes: list[Snake] = []
        self._frames: list[
            tuple[str, str]
        ] = []  # Each frame is stored without and with its decision.

    def record_position(
        self, key: Key, board: Board, decision: Decision | None = None, note: str = ""
    ) -> None:
        """Add a position of a game, the decision on that position, and a note for the page."""
        if not is_normal_size(board) or board.game.id == WARMUP_GAME_ID:
            return
        with self._lock:
            # Some engines use the same id for several games.
            if key != self.key or (board.turn == 0 and self._frames):
                age_s = time.monotonic() - self._last_move_at
                if key != self.key and not self._over and age_s < _TAKEOVER_IDLE_S:
                    return
                self._start_game(key, board)
            elif self._over or board.turn < self._turn:
                return  # The request is late.
            elif board.turn == self._turn:  # The client repeats a request, and plays this decision.
                self._size -= sum(map(len, self._frames.pop()))
            self._last_move_at = time.monotonic()
            self._header["note"] = note
            self._add_frame(board, decision)

    def end(self, key: Key, board: Board | None) -> None:
        """End a game.

        Args:
            key: Game id and snake id.
            board: Last position, or None if unknown.
        """
        with self._lock:
            if key != self.key or self._over:
                return
            if board is not None and is_normal_size(board):
                self._add_frame(board, None)
            self._over, self._version = True, self._version + 1

    def to_json(self, since: int, version: int, moves: str = "") -> str:
        """Return the game as JSON text in the format of `battlesnake_server.replay_json`.

        Args:
            since: Index of the first frame to return.
            version: Version of the game on the client. If the version is outdated, all frames are
                returned.
            moves: First letters of the snake's first moves in the example game. After a restart, a
                page continues its example game from the same position.

        Returns:
            The game's header with ``version``, ``over``, ``from``, ``frames``, ``you`` (the snake's
            seat) and ``note`` (an assumption about the requests, or "").
        """
        with self._lock:
            if self._factory is not None and not self._frames:
                factory, self._factory = self._factory, None
                threading.Thread(
                    target=self._play_example_game, args=(factory, moves), daemon=True
                ).start()
            since = since if version == self._version else 0
            frames = [texts[self._over] for texts in self._frames[since:]]
            status = {"version": self._version, "over": self._over, "from": since}
            return replay_json.chunk_to_json({**self._header, **status}, frames)

    def _start_game(self, key: Key, board: Board) -> None:
        """Replace the featured game with a new game."""
        self._factory, self.key, self._over = None, key, False
        self._version, self._size, self._frames = self._version + 1, 0, []
        you = next(i for i, snake in enumerate(board.snakes) if snake.id == board.you.id)
        self._snakes = board.copy().snakes
        self._header = {**replay_json.header(board), "you": you, "note": ""}

    def _add_frame(self, board: Board, decision: Decision | None) -> None:
        """Store a position as JSON, without and with its decision.

        Engines list only the living snakes. A snake that is missing counts as eliminated.
        """
        board = board.copy()
        listed = {snake.id: snake for snake in board.snakes}
        for snake in self._snakes:
            if snake.alive and snake.id not in listed:
                snake.eliminate(ASSUMED_CAUSE, board.turn)
        board.snakes = self._snakes = [listed.get(snake.id, snake) for snake in self._snakes]
        turn = decision and Turn({board.you.id: decision.move}, decisions={board.you.id: decision})
        plain = json.dumps(replay_json.frame(board))
        with_decision = json.dumps(replay_json.frame(board, turn)) if turn else plain
        self._size += len(plain) + len(with_decision)
        if self._size <= _MAX_FRAME_BYTES:
            self._frames.append((plain, with_decision))
            self._turn = board.turn

    def _play_example_game(self, factory: StrategyFactory, moves: str) -> None:
        """Play the example game, which starts with ``moves``.

        The example game is discarded if a real game has started.
        """
        played = play_game(
            MatchSettings(self.example_spec, nodes=200),
            [lambda seed: _play_moves_first(factory(seed), moves), hungry_snake],
            7,
            names=["this snake", "hungry"],
            reasons=True,
        )
        board, key = played.first, ("example", "")
        board.you_id = board.snakes[0].id
        with self._lock:
            if self._frames:
                return
            self._start_game(key, board)
            for turn in played.turns:
                self._add_frame(board, turn.decisions.get(board.snakes[0].id))
                turn.play(board)
            self._add_frame(board, None)
            self._over = True


def _play_moves_first(strategy: Strategy, moves: str) -> Strategy:
    """Return a strategy that plays ``moves`` (first letters) before the moves of ``strategy``."""

    def decide(board: Board, seconds: float | None = None) -> Decision:
        if board.turn < len(moves):
            return Decision(next(move for move in MOVES if move[0] == moves[board.turn]))
        return strategy(board, seconds)

    return decide if moves else strategy
