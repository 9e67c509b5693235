"""The maps: how a board starts, and what appears on it after every turn."""

from __future__ import annotations

from . import standard
from .base import Map

MAPS: dict[str, Map] = {
    board_map.id: board_map
    for board_map in (
        standard.STANDARD,
        standard.EMPTY,
    )
}
"""Every map by its id."""

__all__ = ["MAPS", "Map"]
