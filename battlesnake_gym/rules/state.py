"""The data of the rules: a position, its snakes, and the constants of a game."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Point = tuple[int, int]
"""A cell ``(x, y)``: x increases to the right, y increases **upwards**, ``(0, 0)`` is bottom left.
"""

MOVES = ("up", "down", "left", "right")
"""The four moves. Everywhere in this project, action ``i`` means ``MOVES[i]``."""

OFFSETS: dict[str, Point] = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
"""The change of the head's coordinates by each move."""

CAUSES = (
    "",
    "wall-collision",
    "snake-self-collision",
    "snake-collision",
    "head-collision",
    "out-of-health",
    "hazard",
)
"""The causes of elimination, as the official API names them; ``""`` means alive.

Arrays contain the index.
"""

MAX_HEALTH = 100
START_LENGTH = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers of a ruleset; the defaults are those of the official command line.

    A negative ``hazard_damage_per_turn`` heals. With ``food_spawn_chance`` 15, food appears in 14%
    of the turns, because the official engine compares with "less than".
    """

    food_spawn_chance: int = 15
    minimum_food: int = 1
    hazard_damage_per_turn: int = 14
    shrink_every_n_turns: int = 25


@dataclass(frozen=True, slots=True)
class Game:
    """The constants of a game, from the first turn to the last.

    Attributes:
        seed: Signed 64-bit integer, not 0; determines start positions and food.
        solo: Whether the game continues until no snake lives, whatever the ruleset.
        id: Field of the API; no rule reads it.
        timeout: Field of the API, in milliseconds; no rule reads it.
        source: Field of the API; no rule reads it.
    """

    ruleset: str = "standard"
    map: str = "standard"
    settings: Settings = Settings()
    seed: int = 1
    solo: bool = False
    id: str = ""
    timeout: int = 500
    source: str = ""


@dataclass(slots=True)
class Snake:
    """One snake.

    Eliminated snakes stay in `State.snakes`, unchanged since their elimination. The rules do not
    read ``name``, ``latency``, ``shout`` and ``customizations``, which the API contains.

    Attributes:
        body: The cells of the segments, head first; segments may share a cell.
        eliminated_cause: One of `CAUSES`.
        eliminated_by: The id of the snake that eliminated this one, or ``""``.
        eliminated_on: The turn of the elimination.
    """

    id: str
    body: list[Point]
    health: int = MAX_HEALTH
    eliminated_cause: str = ""
    eliminated_by: str = ""
    eliminated_on: int = 0
    name: str = ""
    latency: str = "0"
    shout: str = ""
    customizations: dict[str, str] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether the snake is not eliminated."""
        return not self.eliminated_cause

    @property
    def head(self) -> Point:
        """The first cell of the body."""
        return self.body[0]

    @property
    def length(self) -> int:
        """The number of segments, including stacked ones."""
        return len(self.body)


@dataclass(slots=True)
class State:
    """One position. The order of snakes, food and hazards is part of it.

    Attributes:
        hazards: A cell listed k times has k layers. Cells may be off the board: the map
            ``snail_mode`` stores its next trails there.
        memory: Data of the map that the board does not show, kept from turn to turn.
    """

    turn: int
    width: int
    height: int
    snakes: list[Snake]
    food: list[Point] = field(default_factory=list)
    hazards: list[Point] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
