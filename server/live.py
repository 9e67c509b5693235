"""The live snake behind the web application: its sessions, its thinking, its counters."""

from __future__ import annotations

from battlesnake_gym.board import Board
from battlesnake_gym.snakes import Decision, Factory
from server.metrics import Metrics
from server.sessions import Key, Sessions
from server.strategies import is_quick
from server.thinker import Thinker


class LiveSnake:
    """Plays any number of games at once; every public method may be called from any thread.

    ``quick`` tells whether its strategies answer as soon as they can, in milliseconds. If
    ``watched``, the sessions keep what was last seen and said; otherwise that would only be memory
    that somebody else's large requests could fill.
    """

    def __init__(self, factory: Factory, *, watched: bool = False) -> None:
        self._watched = watched
        self.quick = is_quick(factory(0))
        self.sessions = Sessions(factory)
        self.metrics = Metrics(games_alive=self.count_games)
        self._thinker = Thinker(self.metrics, quick=self.quick)

    def start(self, key: Key) -> None:
        """A game begins: build its strategy before the first move asks for it."""
        self.sessions.get(key)

    def move(self, key: Key, board: Board, arrived: float) -> Decision:
        """Answer a move that was asked for at ``arrived`` (`time.perf_counter`)."""
        session = self.sessions.get(key)
        decision = self._thinker.decide(session, board, arrived)
        if self._watched:
            session.board, session.decision = board, decision
        return decision

    def end(self, key: Key) -> None:
        """A game is over: forget it."""
        self.sessions.drop(key)

    def count_games(self) -> int:
        """How many different games are being played."""
        return len({game for game, _ in self.sessions.alive()})
