"""The server: duels on 11x11 against a named snake. Rewards: 1 won, 0.5 drawn, else 0."""

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
except ImportError:  # started in the package's folder, as OpenEnv's images do
    from models import SnakeAction, SnakeObservation

YOU, RIVAL = "A", "B"


class SnakeEnvironment(Environment):
    """One game; ``reset`` takes a seed and the rival's name (`battlesnake-gym snakes`)."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        rival: str = "hungry",
        **_: Any,
    ) -> SnakeObservation:
        """Begin a game; the same seed and moves give the same game."""
        seed = uuid4().int % 2**31 + 1 if seed is None else seed
        self._rival = snakes.make(rival, seed)
        self._board = Board.new(11, 11, [YOU, RIVAL], game=Game(seed=seed))
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return self._seen()

    def step(self, action: SnakeAction, **_: Any) -> SnakeObservation:
        """Play a turn; one after the end changes nothing."""
        if not self._board.is_over():
            decided = snakes.decide(self._board, {RIVAL: self._rival})
            self._board.step({YOU: action.move, RIVAL: decided[RIVAL].move})
            self._state.step_count += 1
        return self._seen()

    def _seen(self) -> SnakeObservation:
        board, over = self._board, self._board.is_over()
        board.you_id = YOU
        living = {snake.id for snake in board.living}
        points = {frozenset({YOU}): 1.0, frozenset(): 0.5}.get(frozenset(living), 0.0)
        safe = list(board.safe_moves()) if YOU in living else []
        return SnakeObservation(
            board=str(board.without_seed()),
            safe_moves=safe,
            done=over,
            reward=points if over else 0.0,
        )

    @property
    def state(self) -> State:
        """The episode and its turns."""
        return self._state


app = create_app(
    SnakeEnvironment,
    SnakeAction,
    SnakeObservation,
    env_name="battlesnake",
    max_concurrent_envs=64,
)


def main() -> None:
    """Serve on port 8000."""
    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
