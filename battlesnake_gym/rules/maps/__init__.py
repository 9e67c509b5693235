"""Maps, which create the first board and change the board after every turn."""

from __future__ import annotations

from battlesnake_gym.common import extensions

from .arcade import ARCADE_MAZE
from .base import Map
from .castle import CASTLES
from .growing import EXPAND_BOX, EXPAND_SCATTER, GROW_BOX, SCATTER, SINKHOLES, SPIRAL
from .pits import HAZARD_PITS
from .pools import HEALING_POOLS
from .rings import INNER_WALL, RINGS, SINGLE_COLUMNS
from .rivers import RIVERS_AND_ISLANDS
from .royale import ROYALE
from .snail import SNAIL_MODE
from .solo_maze import SOLO_MAZE
from .standard import EMPTY_MAP, STANDARD_MAP

MAPS: dict[str, Map] = {
    board_map.id: board_map
    for board_map in (
        STANDARD_MAP,
        EMPTY_MAP,
        ROYALE,
        INNER_WALL,
        RINGS,
        SINGLE_COLUMNS,
        SPIRAL,
        SCATTER,
        GROW_BOX,
        EXPAND_BOX,
        EXPAND_SCATTER,
        SNAIL_MODE,
        SINKHOLES,
        HEALING_POOLS,
        HAZARD_PITS,
        *CASTLES,
        *RIVERS_AND_ISLANDS,
        ARCADE_MAZE,
        SOLO_MAZE,
    )
}
"""All built-in maps by id."""

ENGINE_MAPS = frozenset(MAPS)
"""Ids of the maps that the compiled engine implements.

Games on other maps use the Python rules.
"""


def register_map(board_map: Map) -> None:
    """Register a custom map under its ``id``.

    A custom map with the same id is replaced.

    Raises:
        ValueError: If the id is empty or the id of a built-in map.
    """
    if board_map.id in ENGINE_MAPS or not board_map.id:
        raise ValueError(f"the map {board_map.id!r} is built in; choose another id")
    MAPS[board_map.id] = board_map


def known_maps() -> dict[str, Map]:
    """Load the extensions, which may register maps, and return `MAPS`."""
    extensions.load_all()
    return MAPS


__all__ = ["ENGINE_MAPS", "MAPS", "Map", "known_maps", "register_map"]
