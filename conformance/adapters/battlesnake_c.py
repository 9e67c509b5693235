"""Adapter for the C engine of `battlesnake_gym`.

The engine plays a batch of one game with the official food.
"""

import numpy as np
from gym_records import format_position, parse_game, parse_position
from server_loop import CannotContinueError, Json, UnsupportedGameError, serve

from battlesnake_gym import rules
from battlesnake_gym.engine import engine
from battlesnake_gym.rules import MOVES, RulesError


class _CompiledGame:
    """One game in the C engine."""

    def _create_game(self, header: Json) -> None:
        """Create the game that ``header`` describes."""
        self.header, self.game = header, parse_game(header)
        size = {"width": header["w"], "height": header["h"], "num_snakes": len(header["snakes"])}
        try:
            self.games = engine.Games(1, **size, game=self.game, food_rng="official")
        except ValueError as error:
            raise UnsupportedGameError(str(error)) from error

    def _format_line(self) -> Json:
        """Return the current position as a line of the protocol."""
        state = self.games.state(0)
        names = dict(zip((s.id for s in state.snakes), self.header["snakes"], strict=True))
        for snake in state.snakes:
            snake.eliminated_by = names.get(snake.eliminated_by, snake.eliminated_by)
        return format_position(state, bool(self.games.over[0]))

    def start(self, header: Json) -> Json:
        """Start a game with the seed in ``header``."""
        self._create_game(header)
        self.games.reset(np.array([self.game.seed], dtype=np.int64))
        return self._format_line()

    def load(self, header: Json, state: Json) -> Json:
        """Load a position into the engine."""
        self._create_game(header)
        try:
            self.games.load(0, parse_position(header, state), self.game)
        except ValueError as error:
            raise UnsupportedGameError(str(error)) from error
        return self._format_line()

    def play_turn(self, moves: list[str | None]) -> Json:
        """Play one turn."""
        actions = [MOVES.index(m) if m in MOVES else engine.NO_MOVE for m in moves]
        try:
            self.games.step(np.array([actions], dtype=np.uint8))
        except ValueError as error:
            try:
                rules.MAPS[self.game.map].check_turn(self.game, self.games.state(0))
            except RulesError as over:
                raise CannotContinueError(str(over)) from error
            raise UnsupportedGameError(str(error)) from error
        return self._format_line()


if __name__ == "__main__":
    serve("engine in C", _CompiledGame(), accepts_any_move=True)
