"""Four kinds of shapes of images, and a function that places shapes.

Coordinates are in cells, with x to the right and y **downwards**, as in images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

Coordinates = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Polygon:
    """A filled polygon, or a box between two points with corner radius ``radius``."""

    points: tuple[Coordinates, ...]
    fill: str
    radius: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """A polyline through ``points`` with round caps and joints; ``width`` is in cells."""

    points: tuple[Coordinates, ...]
    fill: str
    width: float


@dataclass(frozen=True, slots=True)
class Disc:
    """A filled circle."""

    center: Coordinates
    fill: str
    radius: float


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text, vertically centered on ``origin``."""

    origin: Coordinates
    fill: str
    text: str
    size: float
    anchor: str = "start"


Part = Polygon | Line | Disc
Shape = Part | Text


def place(
    part: Part, center: Coordinates, direction: Coordinates, fills: Mapping[str, str]
) -> Part:
    """Move a shape to ``center`` and rotate it to face ``direction``.

    Shapes are defined around (0, 0), facing right. A shape that faces left is mirrored instead of
    rotated to keep it upright.

    Args:
        part: Shape to place.
        center: New position of (0, 0).
        direction: Unit vector of one of the four directions.
        fills: Colors by the fill name of the shape.

    >>> place(Disc((0.5, 0.1), "eye", 0.1), (3.0, 2.0), (-1.0, 0.0), {"eye": "#fff"})
    Disc(center=(2.5, 2.1), fill='#fff', radius=0.1)
    """
    (x, y), (dx, dy) = center, direction
    side = -1 if dx < 0 else 1

    def transform(point: Coordinates) -> Coordinates:
        along, across = point
        return x + along * dx - across * dy * side, y + along * dy + across * dx * side

    fill = fills[part.fill]
    if isinstance(part, Disc):
        return replace(part, center=transform(part.center), fill=fill)
    return replace(part, points=tuple(transform(point) for point in part.points), fill=fill)
