"""Data types of the rules: a position, its snakes, the constants of a game, and the error."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


class RulesError(ValueError):
    """Error for invalid arguments or positions.

    The message contains the field, the value and a remedy.
    """


Point = tuple[int, int]
"""A cell ``(x, y)``.

The coordinate x increases to the right, and y increases **upwards**. The cell ``(0, 0)`` is at the
bottom left.
"""


def distance(cell: Point, other: Point) -> int:
    """Return the Manhattan distance of two cells on a board without wrapped edges."""
    return abs(cell[0] - other[0]) + abs(cell[1] - other[1])


MOVES = ("up", "down", "left", "right")
"""Names of the four moves.

In the whole project, action ``i`` means ``MOVES[i]``.
"""

OFFSETS: dict[str, Point] = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
"""Change of the head's coordinates by each move."""

CAUSES = (
    "",
    "wall-collision",
    "snake-self-collision",
    "snake-collision",
    "head-collision",
    "out-of-health",
    "hazard",
)
"""Causes of elimination, with the names of the official API; ``""`` means living.

Arrays contain the index of the cause.
"""

MAX_HEALTH = 100
START_LENGTH = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """Numeric settings of a ruleset, with the defaults of the official CLI.

    A negative ``hazard_damage_per_turn`` heals. With ``food_spawn_chance`` 15, food appears in 14%
    of the turns, because the official engine compares with "less than". ``view_radius`` limits the
    view of each snake to the cells within this Manhattan distance of its head (see
    `boards.limited_view`); None means no limit, and no rule reads it.
    """

    food_spawn_chance: int = 15
    minimum_food: int = 1
    hazard_damage_per_turn: int = 14
    shrink_every_n_turns: int = 25
    view_radius: int | None = None

    def to_dict(self) -> dict[str, int]:
        """Return the settings by name, without ``view_radius`` if the view is not limited."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Game:
    """Constants of a game, which do not change during the game.

    Attributes:
        seed: Signed 64-bit integer, not 0, that determines start positions and food.
        solo: Whether the game continues until no snake is living, regardless of the ruleset.
        id: Id of the game in the API; no rule reads this field.
        timeout: Response timeout in the API, in milliseconds; no rule reads this field.
        source: Source of the game in the API; no rule reads this field.
    """

    ruleset: str = "standard"
    map: str = "standard"
    settings: Settings = Settings()
    seed: int = 1
    solo: bool = False
    id: str = ""
    timeout: int = 500
    source: str = ""

    @property
    def is_solo(self) -> bool:
        """Whether the game continues until no snake is living, and has no winner."""
        return self.solo or self.ruleset == "solo"


@dataclass(slots=True)
class Snake:
    """One snake in a position.

    Eliminated snakes remain in `State.snakes` and do not change after their elimination. The rules
    do not read the API fields ``name``, ``latency``, ``shout`` and ``customizations``.

    Attributes:
        body: Cells of the segments, head first; segments may share a cell.
        eliminated_cause: One of `CAUSES`.
        eliminated_by: Id of the snake that caused the elimination, or ``""``.
        eliminated_on: Turn of the elimination.
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
        """Cell of the first segment."""
        return self.body[0]

    @property
    def length(self) -> int:
        """Number of segments, including stacked segments."""
        return len(self.body)

    def grow(self) -> None:
        """Add one segment on the cell of the last segment."""
        self.body.append(self.body[-1])

    def eliminate(self, cause: str, turn: int, by: str = "") -> None:
        """Mark the snake as eliminated on ``turn`` by the snake with the id ``by``."""
        self.eliminated_cause = cause
        self.eliminated_by = by
        self.eliminated_on = turn


@dataclass(slots=True)
class State:
    """A position, including the order of its snakes, food and hazards.

    Attributes:
        hazards: Cells with hazards; a cell that is listed k times has k layers. The map
            ``snail_mode`` stores its next trails in cells off the board.
        memory: Data that the map stores from turn to turn and that the board does not show.
        new_food: Number of entries at the end of ``food`` that appeared on this turn. With limited
            view, all snakes see this food.
    """

    turn: int
    width: int
    height: int
    snakes: list[Snake]
    food: list[Point] = field(default_factory=list)
    hazards: list[Point] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    new_food: int = field(default=0, compare=False)

    @property
    def living(self) -> list[Snake]:
        """Living snakes, in board order."""
        return [snake for snake in self.snakes if not snake.eliminated_cause]

    def snake(self, snake_id: str) -> Snake:
        """Return the snake with this id.

        Raises:
            RulesError: If no snake has this id.
        """
        for snake in self.snakes:
            if snake.id == snake_id:
                return snake
        known = ", ".join(repr(snake.id) for snake in self.snakes) or "none"
        raise RulesError(f"no snake has the id {snake_id!r:.60}; the board has {known}")

    def inside(self, cell: Point) -> bool:
        """Return whether ``cell`` is on the board."""
        return 0 <= cell[0] < self.width and 0 <= cell[1] < self.height
