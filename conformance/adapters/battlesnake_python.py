"""Adapter for the Python rules of `battlesnake_gym`.

``--mutant RULE`` loads a copy of the rules in which one rule is broken.
"""

from __future__ import annotations

import sys
import tempfile
from types import ModuleType

from gym_records import format_position, import_mutant, parse_game, parse_position
from server_loop import CannotContinueError, Json, serve

from battlesnake_gym import rules
from battlesnake_gym.boards.limited_view import limit_view


class _PythonGame:
    """A game played with the rules of the module ``rules``."""

    def __init__(self, rules: ModuleType) -> None:
        self.rules = rules

    def _format_line(self) -> Json:
        """Return the current position as a line of the protocol."""
        return format_position(self.state, self.rules.is_over(self.game, self.state))

    def start(self, header: Json) -> Json:
        """Start a game with the seed in ``header``."""
        self.game = parse_game(header)
        size = (header["w"], header["h"])
        try:
            self.state = self.rules.start(self.game, *size, header["snakes"])
        except self.rules.RulesError as error:
            raise CannotContinueError(str(error)) from error
        return self._format_line()

    def load(self, header: Json, state: Json) -> Json:
        """Load a position."""
        self.game, self.state = parse_game(header), parse_position(header, state)
        return self._format_line()

    def play_turn(self, moves: list[str | None]) -> Json:
        """Play one turn."""
        named = zip(self.state.snakes, moves, strict=True)
        try:
            self.rules.step(
                self.game, self.state, {s.id: move for s, move in named if move is not None}
            )
        except self.rules.RulesError as error:
            raise CannotContinueError(str(error)) from error
        return self._format_line()

    def limit_view(self, message: Json) -> Json:
        """Return what a snake sees of a complete request."""
        limited = limit_view(message["view"], message["radius"], message["hidden"])
        return {"view": limited["board"]}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mutated = sys.argv[1:2] == ["--mutant"]
        game = _PythonGame(import_mutant(sys.argv[2], folder) if mutated else rules)
        serve("rules in Python", game, accepts_any_move=True)
