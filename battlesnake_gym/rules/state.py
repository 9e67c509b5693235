"""What the rules work on: one position, the snakes in it, and what stays fixed during a game."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Point = tuple[int, int]
"""A cell ``(x, y)``: x grows to the right, y grows **upwards**, ``(0, 0)`` is bottom left."""

MOVES = ("up", "down", "left", "right")
"""The four answers of a snake. Everywhere in this project action ``i`` means ``MOVES[i]``."""

OFFSETS: dict[str, Point] = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
"""What each move adds to the head."""

CAUSES = (
    "",
    "wall-collision",
    "snake-self-collision",
    "snake-collision",
    "head-collision",
    "out-of-health",
    "hazard",
)
"""Why a snake is out, in the reference's words; ``""`` means alive. Arrays hold the index."""

MAX_HEALTH = 100
START_LENGTH = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers of a ruleset; the defaults are those of the official command line.

    ``hazard_damage_per_turn`` may be negative (healing). ``food_spawn_chance`` 15 spawns food in
    14 % of the turns: the reference compares with "less than".
    """

    food_spawn_chance: int = 15
    minimum_food: int = 1
    hazard_damage_per_turn: int = 14
    shrink_every_n_turns: int = 25


@dataclass(frozen=True, slots=True)
class Game:
    """What stays the same from the first turn to the last.

    ``seed`` (a signed 64-bit integer, not 0) decides start positions and food. ``solo`` lets a game
    go on until no snake is left, whatever the ruleset. ``id``, ``timeout`` (milliseconds) and
    ``source`` are carried for the API; no rule reads them.
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
    """One snake: ``body`` is a list of cells, head first; segments may share a cell.

    Eliminated snakes stay in the list, frozen at the moment of death, with ``eliminated_cause``
    (one of ``CAUSES``), ``eliminated_by`` (an id or ``""``) and ``eliminated_on`` (a turn).
    ``name``, ``latency``, ``shout`` and ``customizations`` are carried for the API; no rule reads
    them.
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
        """Whether the snake still plays."""
        return not self.eliminated_cause

    @property
    def head(self) -> Point:
        """The first cell of the body."""
        return self.body[0]

    @property
    def length(self) -> int:
        """The number of segments, stacked ones included."""
        return len(self.body)


@dataclass(slots=True)
class State:
    """One position. The order of snakes, food and hazards is part of it.

    A cell listed k times in ``hazards`` is a stack of k; hazards may lie off the board
    (the map ``snail_mode`` remembers there). ``memory`` belongs to the map: what it must know from
    turn to turn beyond the board.
    """

    turn: int
    width: int
    height: int
    snakes: list[Snake]
    food: list[Point] = field(default_factory=list)
    hazards: list[Point] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
