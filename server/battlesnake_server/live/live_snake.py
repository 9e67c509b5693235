"""The live snake behind the web application: sessions, move runner, metrics."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.elimination_tracker import ASSUMED_CAUSE
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.boards.limited_view import VIEW_RADIUS_KEY
from battlesnake_gym.snakes import Decision, StrategyFactory
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.search import Search
from battlesnake_server.live.fallback import is_normal_size
from battlesnake_server.live.featured_game import FeaturedGame
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.move_runner import AVAILABLE_CORES, NUM_CORES, MoveRunner
from battlesnake_server.live.parse_gate import ParseGate
from battlesnake_server.live.ponderer import Ponderer
from battlesnake_server.live.sessions import Key, Sessions
from battlesnake_server.strategy_loader import is_instant

MAX_TIMEOUT_MS = 10_000
"""Maximum timeout of a game in milliseconds.

Engines never wait longer.
"""

log = logging.getLogger(__name__)


class LiveSnake:
    """Snake that plays any number of games concurrently.

    All public methods are thread-safe.

    Args:
        factory: Function that builds the strategy of a session.
        ponders: Whether the search continues while the snake waits for the next move.
        view_radius: View radius in the example game of the snake's page; None for no limit.

    Attributes:
        is_instant: Whether the strategies move within milliseconds.
        parse_gate: Gate that orders the parsing of oversized request bodies.

    Raises:
        ValueError: If ``ponders`` is set, but the strategy is not a search.
    """

    def __init__(
        self, factory: StrategyFactory, *, ponders: bool = False, view_radius: int | None = None
    ) -> None:
        self._ponders = ponders
        example = factory(0)
        if ponders and not isinstance(example, Search):
            raise ValueError(
                "only a search with a time budget, such as champion, can ponder; omit --ponder "
                "(BATTLESNAKE_PONDER)"
            )
        self.is_instant = is_instant(example)
        self.sessions = Sessions(factory)
        self.featured_game = FeaturedGame(factory, view_radius)
        self.metrics = Metrics(active_games=self.sessions.count_games)
        self._move_runner = MoveRunner(self.metrics, is_instant=is_instant, low_priority=True)
        self._ponderer = Ponderer()
        self.parse_gate = ParseGate()
        search.SEARCH_CORES.configure(NUM_CORES, AVAILABLE_CORES)

    def start(self, key: Key) -> None:
        """Create the session of a game, and start building the strategy."""
        self._move_runner.prepare(self.sessions.get_or_create(key))

    def move(
        self,
        key: Key,
        body: Mapping[str, Any],
        arrived: float,
        disconnected: Future[None] | None = None,
        body_bytes: int = 0,
        max_timeout_ms: int = MAX_TIMEOUT_MS,
    ) -> Decision:
        """Choose a move.

        Unreadable fields are ignored, counted, and logged once per game. An assumption about the
        view radius is logged once per game, and the page shows the assumption.

        Args:
            key: Game id and snake id.
            body: JSON object of the request.
            arrived: Arrival time of the request (`time.perf_counter`).
            disconnected: Future that completes if the client disconnects; a search then stops.
            body_bytes: Size of the request's body in bytes.
            max_timeout_ms: Time in which the host ends this request, in milliseconds.

        Raises:
            BoardError: If the board's size or ``you`` is unreadable.
        """
        session = self.sessions.get_or_create(key)
        ignored: list[str] = []
        with self.parse_gate.admit(body_bytes), session.lock:
            board = Board.from_api(body, tracker=session.eliminations, errors=ignored)
            assumptions = [message for message in ignored if VIEW_RADIUS_KEY in message]
            if assumptions and not session.assumption:
                session.assumption = assumptions[0]
                log.warning("%s: %s", session.name, session.assumption)
            others = [message for message in ignored if message not in assumptions]
            first = bool(others) and not session.warned_of_bad_fields
            session.warned_of_bad_fields |= first
        longest = min(max_timeout_ms, MAX_TIMEOUT_MS)
        if board.game.timeout > longest:
            board.game = replace(board.game, timeout=longest)
        self.metrics.ignored_fields.inc(len(ignored))
        if first:
            log.warning(
                "%s: %s; this and other unreadable fields are ignored", session.name, others[0]
            )
        with self._ponderer.pause():
            decision = self._move_runner.decide(session, board, arrived, disconnected)
        # On oversized boards, the time that a search needs to stop is unknown.
        if self._ponders and isinstance(session.strategy, Search) and is_normal_size(board):
            self._ponderer.ponder(session.strategy, board, decision)
        try:
            self.featured_game.record_position(key, board, decision, session.assumption)
        except Exception:  # User code may return an invalid decision with a valid move.
            log.exception("%s cannot be shown on the page", session.name)
        return decision

    def end(self, key: Key, body: Mapping[str, Any], body_bytes: int = 0) -> None:
        """Delete the session of a finished game. For the arguments, see `move`.

        The featured game remains on the page.
        """
        if self.featured_game.key == key:
            session, last = self.sessions.get_or_create(key), None
            gate = self.parse_gate.admit(body_bytes)
            with gate, session.lock, contextlib.suppress(BoardError):
                # If errors are collected, ``you`` counts as living.
                errors: list[str] | None = [] if session.assumption else None
                last = Board.from_api(body, tracker=session.eliminations, errors=errors)
                listed = json_fields.objects(body["board"], "snakes", "board")
                if last.you.alive and all(snake.get("id") != last.you_id for snake, _ in listed):
                    last.you.eliminate(ASSUMED_CAUSE, last.turn)
            self.featured_game.end(key, last)
        self.sessions.delete(key)
        self._ponderer.cancel(key)
