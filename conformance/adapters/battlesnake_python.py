"""Python rules of `battlesnake_gym`.

``--mutant RULE`` breaks one rule.
"""

from __future__ import annotations

import sys
import tempfile
from types import ModuleType

from gym_records import game_of, line_of, mutant_of, state_of
from server_loop import Json, OverError, serve

from battlesnake_gym import rules


class PythonRules:
    """A game that follows the rules of the module ``rules``."""

    def __init__(self, rules: ModuleType) -> None:
        self.rules = rules

    def _line(self) -> Json:
        return line_of(self.state, self.rules.is_over(self.game, self.state))

    def start(self, header: Json) -> Json:
        """Start a game from the seed in ``header``."""
        self.game = game_of(header)
        size = (header["w"], header["h"])
        try:
            self.state = self.rules.start(self.game, *size, header["snakes"])
        except self.rules.RulesError as error:
            raise OverError(str(error)) from error
        return self._line()

    def load(self, header: Json, state: Json) -> Json:
        """Load a position."""
        self.game, self.state = game_of(header), state_of(header, state)
        return self._line()

    def step(self, moves: list[str | None]) -> Json:
        """Play one turn."""
        named = zip(self.state.snakes, moves, strict=True)
        try:
            self.rules.step(
                self.game, self.state, {s.id: move for s, move in named if move is not None}
            )
        except self.rules.RulesError as error:
            raise OverError(str(error)) from error
        return self._line()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mutated = sys.argv[1:2] == ["--mutant"]
        serve("rules in Python", PythonRules(mutant_of(sys.argv[2], folder) if mutated else rules))
