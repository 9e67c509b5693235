"""OpenEnv server for duels on 11x11 against a built-in snake.

The reward at the end of a game is 1 for a win, 0.5 for a draw and 0 for a loss.
"""

from typing import Any
from uuid import uuid4

import uvicorn

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

try:
    from ..models import SnakeAction, SnakeObservation
except ImportError:  # The images of OpenEnv start in the folder of the package.
    from models import SnakeAction, SnakeObservation

AGENT, OPPONENT = "A", "B"


class SnakeEnvironment(Environment):
    """A duel of the agent (snake A) against a built-in snake (snake B).

    The argument ``opponent`` of ``reset`` is a name listed by `battlesnake-gym snakes`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        opponent: str = "hungry",
        **_: Any,
    ) -> SnakeObservation:
        """Start a duel against the built-in snake ``opponent``.

        Equal seeds and equal moves produce equal games.
        """
        seed = uuid4().int % 2**31 + 1 if seed is None else seed
        self._opponent = snakes.make(opponent, seed)
        self._board = Board.new(11, 11, [AGENT, OPPONENT], game=Game(seed=seed))
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return self._observe()

    def step(self, action: SnakeAction, **_: Any) -> SnakeObservation:
        """Play one turn with the agent's move.

        After the end of the game, a step has no effect.
        """
        if not self._board.is_over():
            decided = snakes.decide(self._board, {OPPONENT: self._opponent})
            self._board.step({AGENT: action.move, OPPONENT: decided[OPPONENT].move})
            self._state.step_count += 1
        return self._observe()

    def _observe(self) -> SnakeObservation:
        board, over = self._board, self._board.is_over()
        board.you_id = AGENT
        living = {snake.id for snake in board.living}
        points = {frozenset({AGENT}): 1.0, frozenset(): 0.5}.get(frozenset(living), 0.0)
        safe = list(board.safe_moves()) if AGENT in living else []
        return SnakeObservation(
            board=str(board.without_seed()),
            safe_moves=safe,
            done=over,
            reward=points if over else 0.0,
        )

    @property
    def state(self) -> State:
        """Episode id and number of turns played."""
        return self._state


app = create_app(
    SnakeEnvironment,
    SnakeAction,
    SnakeObservation,
    env_name="battlesnake",
    max_concurrent_envs=64,
)


def main() -> None:
    """Serve on port 8000 of this machine.

    ``uvicorn battlesnake_env.server.app:app --host 0.0.0.0`` serves other machines too.
    """
    uvicorn.run(app, host="127.0.0.1", port=8000)


if __name__ == "__main__":
    main()
