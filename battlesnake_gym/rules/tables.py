"""Data that the compiled engine reads on import: layouts and Go's constant table.

The C code contains no copy of these definitions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from battlesnake_gym.rules.gorand import TABLE
from battlesnake_gym.rules.maps import arcade, castle, pits, rivers
from battlesnake_gym.rules.state import Point

RANDOM = struct.pack("=607Q", *TABLE)
"""The 64-bit words of `gorand.TABLE`, in native byte order."""


def _places(points: Iterable[Point]) -> bytes:
    return bytes(coordinate for point in points for coordinate in point)


def _quadrants(lists: Iterable[Iterable[Point]]) -> bytes:
    """Encode four lists of start cells, each padded to four cells."""
    return b"".join(_places(points).ljust(8, b"\0") for points in lists)


_RIVERS = {
    "RIVERS": (rivers.RIVERS, rivers.RIVERS_STARTS),
    "RIVERS_LG": (rivers.RIVERS_LARGE, rivers.RIVERS_LARGE_STARTS),
    "RIVERS_XL": (rivers.RIVERS_EXTRA_LARGE, rivers.RIVERS_EXTRA_LARGE_STARTS),
    "ISLANDS": (rivers.ISLANDS, rivers.ISLANDS_STARTS),
    "ISLANDS_LG": (rivers.ISLANDS_LARGE, rivers.ISLANDS_LARGE_STARTS),
}
_CASTLES = {"CASTLE": castle.SMALL, "CASTLE_LG": castle.LARGE, "CASTLE_XL": castle.EXTRA_LARGE}

LAYOUTS: dict[str, bytes] = {
    **{f"{name}_HAZARDS": _places(hazards) for name, (hazards, _) in _RIVERS.items()},
    **{f"{name}_STARTS": _quadrants(starts) for name, (_, starts) in _RIVERS.items()},
    **{f"{name}_HAZARDS": _places(walls.hazards()) for name, walls in _CASTLES.items()},
    **{
        f"{name}_STARTS": _places(place for group in walls.starts for place in group)
        for name, walls in _CASTLES.items()
    },
    **{f"{name}_GATES": _places(walls.gate_cells()) for name, walls in _CASTLES.items()},
    "ARCADE_HAZARDS": _places(arcade.WALLS),
    "ARCADE_CORNERS": _places(arcade.CORNER_STARTS),
    "ARCADE_LATER_STARTS": _places(arcade.LATER_STARTS),
    "ARCADE_FOOD": _places(arcade.FOOD_PLACES),
    "PITS_STARTS": _places(pits.STARTS),
    "PITS_HAZARDS": _places(pits.PITS),
}
"""Cell lists by C name.

Each cell is two bytes, x and y.
"""
