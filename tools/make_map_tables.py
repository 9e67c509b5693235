"""Writes ``csrc/map_tables.h``: the fixed layouts of the Python rules, for the C engine.

Run it after changing a layout: ``python tools/make_map_tables.py``. A test compares both.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from battlesnake_gym.rules.maps import arcade, castle, pits, rivers
from battlesnake_gym.rules.state import Point

TARGET = Path(__file__).parent.parent / "battlesnake_gym/csrc/map_tables.h"

RIVER_MAPS = {
    "RIVERS": (rivers.RIVERS, rivers.RIVERS_STARTS),
    "RIVERS_LG": (rivers.RIVERS_LARGE, rivers.RIVERS_LARGE_STARTS),
    "RIVERS_XL": (rivers.RIVERS_EXTRA_LARGE, rivers.RIVERS_EXTRA_LARGE_STARTS),
    "ISLANDS": (rivers.ISLANDS, rivers.ISLANDS_STARTS),
    "ISLANDS_LG": (rivers.ISLANDS_LARGE, rivers.ISLANDS_LARGE_STARTS),
}
CASTLE_MAPS = {
    "CASTLE": castle.SMALL,
    "CASTLE_LG": castle.LARGE,
    "CASTLE_XL": castle.EXTRA_LARGE,
}


def rows(points: Iterable[Point]) -> str:
    """The points as C initialisers."""
    return "\n    ".join(textwrap.wrap(", ".join(f"{{{x},~{y}}}" for x, y in points), 92)).replace(
        "~", " "
    )


def table(name: str, points: Sequence[Point]) -> str:
    """One list of cells as a C array."""
    return f"static const Point {name}[] = {{\n    {rows(points)},\n}};\n"


def quadrants(name: str, lists: Sequence[Sequence[Point]]) -> str:
    """Four lists of up to four start places."""
    lines = ",\n    ".join(f"{{{rows(points)}}}" for points in lists)
    return f"static const Point {name}[4][4] = {{\n    {lines},\n}};\n"


def render() -> str:
    """The whole header."""
    parts = [
        "/* The fixed layouts of maps, from battlesnake_gym/rules/maps; written by\n"
        " * tools/make_map_tables.py, do not edit. */\n"
        "#ifndef BATTLESNAKE_MAP_TABLES_H\n#define BATTLESNAKE_MAP_TABLES_H\n\n"
        '#include "cold.h"\n'
    ]
    for name, (hazards, starts) in RIVER_MAPS.items():
        parts += [table(f"{name}_HAZARDS", hazards), quadrants(f"{name}_STARTS", starts)]
    for name, walls in CASTLE_MAPS.items():
        starts_in_order = [place for group in walls.starts for place in group]
        parts += [
            table(f"{name}_HAZARDS", walls.hazards()),
            table(f"{name}_STARTS", starts_in_order),
            table(f"{name}_GATES", walls.gate_cells()),
        ]
    parts += [
        table("ARCADE_HAZARDS", arcade.WALLS),
        table("ARCADE_CORNERS", arcade.CORNER_STARTS),
        table("ARCADE_LATER_STARTS", arcade.LATER_STARTS),
        table("ARCADE_FOOD", arcade.FOOD_PLACES),
        table("PITS_STARTS", pits.STARTS),
        table("PITS_HAZARDS", pits.PITS),
        "#endif\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")
