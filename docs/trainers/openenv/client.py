"""OpenEnv client that plays one game over one WebSocket."""

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.types import State

from .models import SnakeAction, SnakeObservation


class SnakeClient(EnvClient[SnakeAction, SnakeObservation, State]):
    """Client that plays one game over one WebSocket.

    Example: ``with SnakeClient(base_url=...).sync() as game: game.reset(seed=1,
    opponent="hunter")``.
    """

    def _step_payload(self, action: SnakeAction) -> dict[str, Any]:
        return {"move": action.move}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SnakeObservation]:
        done, reward = payload["done"], payload["reward"]
        seen = SnakeObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=seen, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)
