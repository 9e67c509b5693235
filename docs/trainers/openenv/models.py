"""Action type and observation type of the environment."""

from typing import Literal

from openenv.core.env_server.types import Action, Observation


class SnakeAction(Action):
    """An action: the move of snake A."""

    move: Literal["up", "down", "left", "right"]


class SnakeObservation(Observation):
    """An observation: the position as text, from the perspective of snake A.

    ``Board.from_text`` of battlesnake_gym parses the text.
    """

    board: str
    safe_moves: list[str]
    """Moves that do not leave the board and do not enter a body cell."""
