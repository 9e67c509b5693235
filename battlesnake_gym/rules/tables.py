"""Map layouts and the constant table of Go.

The compiled engine reads these definitions on import. The C code does not contain a copy of
these definitions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from battlesnake_gym.rules.gorand import SEED_TABLE
from battlesnake_gym.rules.maps import arcade, castle, pits, rivers
from battlesnake_gym.rules.state import Point

RANDOM = struct.pack("=607Q", *SEED_TABLE)
"""The 607 words of `gorand.SEED_TABLE`, 64 bits each, in native byte order."""


def _encode_cells(points: Iterable[Point]) -> bytes:
    return bytes(coordinate for point in points for coordinate in point)


def _encode_quadrants(lists: Iterable[Iterable[Point]]) -> bytes:
    """Encode lists of start cells, each padded with zeros to four cells."""
    return b"".join(_encode_cells(points).ljust(8, b"\0") for points in lists)


_RIVERS_BY_NAME = {
    map_id.removeprefix("hz_").replace("_bridges", "").upper(): layout
    for map_id, layout in rivers.LAYOUTS.items()
}
_CASTLES_BY_NAME = {
    "CASTLE": castle.SMALL_CASTLE,
    "CASTLE_LG": castle.LARGE_CASTLE,
    "CASTLE_XL": castle.EXTRA_LARGE_CASTLE,
}

LAYOUTS: dict[str, bytes] = {
    **{f"{name}_HAZARDS": _encode_cells(one.hazards) for name, one in _RIVERS_BY_NAME.items()},
    **{f"{name}_STARTS": _encode_quadrants(one.starts) for name, one in _RIVERS_BY_NAME.items()},
    **{
        f"{name}_HAZARDS": _encode_cells(walls.hazards())
        for name, walls in _CASTLES_BY_NAME.items()
    },
    **{
        f"{name}_STARTS": _encode_cells(place for group in walls.starts for place in group)
        for name, walls in _CASTLES_BY_NAME.items()
    },
    **{
        f"{name}_GATES": _encode_cells(walls.gate_cells())
        for name, walls in _CASTLES_BY_NAME.items()
    },
    "ARCADE_HAZARDS": _encode_cells(arcade.WALL_CELLS),
    "ARCADE_CORNERS": _encode_cells(arcade.CORNER_STARTS),
    "ARCADE_LATER_STARTS": _encode_cells(arcade.LATER_STARTS),
    "ARCADE_FOOD": _encode_cells(arcade.FOOD_CELLS),
    "PITS_STARTS": _encode_cells(pits.START_CELLS),
    "PITS_HAZARDS": _encode_cells(pits.PITS),
}
"""Encoded cell lists by the name in the C code.

Each cell is two bytes, x and y.
"""
