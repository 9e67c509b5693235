"""C engine of `battlesnake_gym`: a batch of one game with the official food."""

import numpy as np
from gym_records import game_of, line_of, state_of
from server_loop import Json, OverError, RefusedError, serve

from battlesnake_gym import rules
from battlesnake_gym.engine import engine
from battlesnake_gym.rules import MOVES, RulesError


class Compiled:
    """One game in the compiled engine."""

    def _make(self, header: Json) -> None:
        self.header, self.game = header, game_of(header)
        size = {"width": header["w"], "height": header["h"], "num_snakes": len(header["snakes"])}
        try:
            self.games = engine.Games(1, **size, game=self.game, food_rng="official")
        except ValueError as error:
            raise RefusedError(str(error)) from error

    def _line(self) -> Json:
        state = self.games.state(0)
        names = dict(zip((s.id for s in state.snakes), self.header["snakes"], strict=True))
        for snake in state.snakes:
            snake.eliminated_by = names.get(snake.eliminated_by, snake.eliminated_by)
        return line_of(state, bool(self.games.over[0]))

    def start(self, header: Json) -> Json:
        """Start a game from the seed in ``header``."""
        self._make(header)
        self.games.reset(np.array([self.game.seed], dtype=np.int64))
        return self._line()

    def load(self, header: Json, state: Json) -> Json:
        """Load a position."""
        self._make(header)
        try:
            self.games.load(0, state_of(header, state), self.game)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        return self._line()

    def step(self, moves: list[str | None]) -> Json:
        """Play one turn."""
        actions = [MOVES.index(m) if m in MOVES else engine.NO_MOVE for m in moves]
        try:
            self.games.step(np.array([actions], dtype=np.uint8))
        except ValueError as error:
            try:
                rules.MAPS[self.game.map].check_turn(self.game, self.games.state(0))
            except RulesError as over:
                raise OverError(str(over)) from error
            raise RefusedError(str(error)) from error
        return self._line()


if __name__ == "__main__":
    serve("engine in C", Compiled())
