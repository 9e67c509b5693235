"""The live snake behind the web application: its sessions, its thinking, its counters."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.snakes import Decision, Factory
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.search import Search
from battlesnake_server.http.connection_table import ClientState
from battlesnake_server.live.fallback import is_normal_size
from battlesnake_server.live.featured_game import FeaturedGame
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.move_runner import AVAILABLE_CORES, NUM_CORES, MoveRunner
from battlesnake_server.live.ponderer import Ponderer
from battlesnake_server.live.sessions import Key, Sessions
from battlesnake_server.strategy_loader import is_instant

_MAX_TIMEOUT_MS = 10_000
"""Milliseconds; no engine waits for longer, and who says so only wants to keep us busy."""

log = logging.getLogger(__name__)


class LiveSnake:
    """Plays any number of games at once; every public method may be called from any thread.

    ``is_instant`` says whether its strategies answer as soon as they can, in milliseconds. If
    it ``ponders``, it thinks on while it waits.

    Raises ``ValueError`` where it ``ponders`` and does not search.
    """

    def __init__(self, factory: Factory, *, ponders: bool = False) -> None:
        self._ponders = ponders
        one = factory(0)
        if ponders and not isinstance(one, Search):
            raise ValueError(
                "only a search against the clock can ponder, like champion; leave --ponder "
                "(BATTLESNAKE_PONDER) out"
            )
        self.is_instant = is_instant(one)
        self.sessions = Sessions(factory)
        self.showcase = FeaturedGame(factory)
        self.metrics = Metrics(games_alive=self.sessions.count_games)
        self._thinker = MoveRunner(self.metrics, is_instant=self.is_instant, low_priority=True)
        self._ponderer = Ponderer()
        search.SEARCH_CORES.use(NUM_CORES, AVAILABLE_CORES)

    def start(self, key: Key) -> None:
        """A game begins: build its strategy before the first move asks for it."""
        self.sessions.get(key)

    def move(
        self, key: Key, body: Mapping[str, Any], arrived: float, client: ClientState | None = None
    ) -> Decision:
        """Answer a move that was asked for at ``arrived`` (`time.perf_counter`) by ``client``.

        Raises `BoardError` where the board's size or ``you`` cannot be read. All else that cannot
        is ignored: counted, and logged once a game.
        """
        session = self.sessions.get(key)
        unread: list[str] = []
        with session.lock:
            board = Board.from_api(body, corpses=session.eliminations, errors=unread)
            first = bool(unread) and not session.warned_of_bad_fields
            session.warned_of_bad_fields |= first
        if board.game.timeout > _MAX_TIMEOUT_MS:
            board.game = replace(board.game, timeout=_MAX_TIMEOUT_MS)
        self.metrics.unread_fields.inc(len(unread))
        if first:
            log.warning("%s: %s, and maybe more; played without", session.name, unread[0])
        with self._ponderer.paused():
            decision = self._thinker.decide(session, board, arrived, client or ClientState())
        # On a larger board than games have, it is not known how soon a search stops.
        if self._ponders and isinstance(session.strategy, Search) and is_normal_size(board):
            self._ponderer.ponder(session.strategy, board, decision)
        self.showcase.record(key, board, decision)
        return decision

    def end(self, key: Key, body: Mapping[str, Any]) -> None:
        """A game is over: forget it, except for what the snake's page shows."""
        if self.showcase.key == key:
            session, last = self.sessions.get(key), None
            with session.lock, contextlib.suppress(BoardError):
                last = Board.from_api(body, corpses=session.eliminations, errors=[])
            self.showcase.end(key, last)
        self.sessions.drop(key)
        self._ponderer.stop()
