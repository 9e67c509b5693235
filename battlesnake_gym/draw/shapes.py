"""What pictures are made of: four kinds of shapes, placed and turned at will.

Coordinates are in cells, x to the right and y **downwards**, as in pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Polygon:
    """A filled shape; ``radius`` rounds the corners of what is given as two opposite corners."""

    points: tuple[Place, ...]
    fill: str
    radius: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """A stroke through ``points`` with round ends and joints."""

    points: tuple[Place, ...]
    fill: str
    width: float


@dataclass(frozen=True, slots=True)
class Disc:
    """A filled circle."""

    centre: Place
    fill: str
    radius: float


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, vertically centred on ``place``."""

    place: Place
    fill: str
    text: str
    size: float
    anchor: str = "start"


Part = Polygon | Line | Disc
Shape = Part | Text


def place(part: Part, centre: Place, ahead: Place, fills: Mapping[str, str]) -> Part:
    """``part``, drawn around (0, 0) and looking to the right, put at ``centre`` to look ``ahead``.

    ``ahead`` is one of the four directions. What looks to the left is mirrored, not turned, so that
    nothing stands on its head. ``fills`` gives the colour of what the part's ``fill`` names.

    >>> place(Disc((0.5, 0.1), "eye", 0.1), (3.0, 2.0), (-1.0, 0.0), {"eye": "#fff"})
    Disc(centre=(2.5, 2.1), fill='#fff', radius=0.1)
    """
    (x, y), (dx, dy) = centre, ahead
    side = -1 if dx < 0 else 1

    def put(point: Place) -> Place:
        along, across = point
        return x + along * dx - across * dy * side, y + along * dy + across * dx * side

    fill = fills[part.fill]
    if isinstance(part, Disc):
        return replace(part, centre=put(part.centre), fill=fill)
    return replace(part, points=tuple(put(point) for point in part.points), fill=fill)
