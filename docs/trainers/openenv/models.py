"""Action and observation of the environment."""

from typing import Literal

from openenv.core.env_server.types import Action, Observation


class SnakeAction(Action):
    """The move of snake A."""

    move: Literal["up", "down", "left", "right"]


class SnakeObservation(Observation):
    """Position as text, with A as ``you``.

    ``Board.from_text`` of battlesnake_gym parses the text.
    """

    board: str
    safe_moves: list[str]
    """Moves that neither leave the board nor enter a body cell."""
