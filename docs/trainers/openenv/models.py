"""Action and observation of the environment."""

from typing import Literal

from openenv.core.env_server.types import Action, Observation


class SnakeAction(Action):
    """The move of snake A."""

    move: Literal["up", "down", "left", "right"]


class SnakeObservation(Observation):
    """The position as text, with A as ``you``; ``Board.from_text`` of battlesnake_gym reads it."""

    board: str
    safe_moves: list[str]
    """Moves that lead neither off the board nor onto a body."""
