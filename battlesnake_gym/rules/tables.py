"""Map layouts and the constant table of Go.

The compiled engine reads these definitions on import. The C code does not contain a copy of
these definitions.
"""

from __future__ import annotations

import itertools
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


LAYOUTS: dict[str, bytes] = {
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

for _map_id, _river in rivers.LAYOUTS.items():
    _name = _map_id.removeprefix("hz_").replace("_bridges", "").upper()
    LAYOUTS[f"{_name}_HAZARDS"] = _encode_cells(_river.hazards)
    LAYOUTS[f"{_name}_STARTS"] = _encode_quadrants(_river.starts)
for _map_id, _castle in castle.LAYOUTS.items():
    _name = _map_id.removeprefix("hz_").replace("_wall", "").upper()
    LAYOUTS[f"{_name}_HAZARDS"] = _encode_cells(_castle.hazards())
    LAYOUTS[f"{_name}_STARTS"] = _encode_cells(itertools.chain(*_castle.starts))
    LAYOUTS[f"{_name}_GATES"] = _encode_cells(_castle.gate_cells())
