"""Colors, heads and tails of snakes, for images and web pages.

`assign_colors` assigns each snake of a game a distinguishable color. `HEADS` and `TAILS` use the
official names, but their shapes differ from the official shapes.

Shapes are centered on (0, 0) and face right. Coordinates are in cells, with y downwards. A tail
points away from the body. The field ``fill`` names a color: ``body`` (the snake's color), ``shade``
(a darker shade of the snake's color), ``white``, ``ink`` or ``red``.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from battlesnake_gym.rules.state import Snake

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

PALETTE = (
    "#2f6fde", "#e4572e", "#2a9d5c", "#a04ad1", "#e0a100", "#12a5b8", "#d63384", "#7a5c3e",
    "#ee99ff", "#005500", "#55dd00", "#770066", "#ff00ff", "#224477", "#aaccbb", "#0000cc",
)  # fmt: skip
"""Distinguishable colors for snakes without a color of their own.

Snakes whose color is taken also use these colors.
"""

MIN_COLOR_DISTANCE = 0.1
"""Minimum OKLab distance of distinguishable colors.

The distance from black to white is 1.
"""

INK, WHITE, RED = "#1f2430", "#ffffff", "#e5383b"

HEX_COLOR_PATTERN = re.compile(r"#[0-9a-fA-F]{6}|#[0-9a-fA-F]{3}")
"""Pattern of a color in a snake's ``customizations``."""


def assign_colors(snakes: Sequence[Snake]) -> list[str]:
    """Return a distinguishable color for each snake, as ``#rrggbb``, in order.

    The hex color in a snake's ``customizations`` is used unless an earlier snake has a similar
    color. The color of any other snake is the first free color of `PALETTE`, starting at the
    snake's index. If the palette is exhausted, colors outside the palette are used.

    >>> gray = [Snake(name, [(0, 0)], customizations={"color": "#888888"}) for name in "ab"]
    >>> assign_colors([*gray, Snake("c", [(0, 0)])])
    ['#888888', '#e4572e', '#2a9d5c']
    """
    found: dict[int, str] = {}
    for i, snake in enumerate(snakes):
        own = snake.customizations.get("color", "")
        if HEX_COLOR_PATTERN.fullmatch(own) and _is_distinct(_expand_hex(own), found.values()):
            found[i] = _expand_hex(own)
    for i in range(len(snakes)):
        if i not in found:
            found[i] = _free_color(i, list(found.values()))
    return [found[i] for i in range(len(snakes))]


def _free_color(index: int, taken: Sequence[str]) -> str:
    """Return the palette color at ``index``, or the next color that is not taken."""
    start = index % len(PALETTE)
    for candidate in (*PALETTE[start:], *PALETTE[:start]):
        if _is_distinct(candidate, taken):
            return candidate
    return max(
        _color_grid(), key=lambda shade: min(_color_distance(shade, other) for other in taken)
    )


def _is_distinct(color: str, taken: Any) -> bool:
    return all(_color_distance(color, other) >= MIN_COLOR_DISTANCE for other in taken)


@functools.cache
def _color_grid() -> tuple[str, ...]:
    """Return 216 RGB colors, which are the candidates if the whole palette is taken."""
    steps = range(0, 256, 51)
    return tuple(
        f"#{red:02x}{green:02x}{blue:02x}" for red in steps for green in steps for blue in steps
    )


def blend(top: str, bottom: str, alpha: float) -> str:
    """Blend the color ``top`` over the color ``bottom``.

    Args:
        top: Color in the foreground.
        bottom: Color in the background.
        alpha: Opacity of ``top`` in [0, 1].

    >>> blend("#ff0000", "#ffffff", 0.5)
    '#ff8080'
    """
    pairs = zip(_rgb_channels(top), _rgb_channels(bottom), strict=True)
    return "#" + "".join(f"{round(a * alpha + b * (1 - alpha)):02x}" for a, b in pairs)


def _expand_hex(color: str) -> str:
    """Expand a short hex color: ``#f80`` becomes ``#ff8800``."""
    return "#" + "".join(f"{channel:02x}" for channel in _rgb_channels(color))


def _rgb_channels(color: str) -> tuple[int, int, int]:
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


def _color_distance(one: str, other: str) -> float:
    """Return the perceptual distance of two colors, in OKLab (Ottosson, 2020)."""
    return math.dist(_oklab(one), _oklab(other))


@functools.lru_cache(maxsize=1024)
def _oklab(color: str) -> tuple[float, float, float]:
    r, g, b = (_linearize(channel / 255) for channel in _rgb_channels(color))
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _linearize(channel: float) -> float:
    return float(channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)


def fill_colors(color: str) -> dict[str, str]:
    """Return the hex color of each fill name for a snake of the given color."""
    return {
        "body": color, "shade": blend(INK, color, 0.35), "white": WHITE, "ink": INK, "red": RED,
    }  # fmt: skip


def head_parts(name: str) -> tuple[Part, ...]:
    """Return the shapes that the official head ``name`` draws on a round head."""
    return HEADS.get(name, HEADS["default"])


def tail_parts(name: str) -> tuple[Part, ...]:
    """Return the shapes that the official tail ``name`` draws at the end of a body.

    The result is empty for a pointed tail.
    """
    return TAILS.get(name, TAILS["default"])


def parts_to_dicts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Convert shapes to JSON objects for the board of the web pages.

    The keys of an object are ``points`` or ``center``, ``fill``, and ``radius`` or ``width``.

    >>> parts_to_dicts([Disc((0.1, 0.2), "ink", 0.3)])
    [{'center': (0.1, 0.2), 'fill': 'ink', 'radius': 0.3}]
    """
    return [{name: getattr(part, name) for name in part.__slots__} for part in parts]


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


def _eye_parts(
    x: float, y: float, size: float = 0.12, look: tuple[float, float] = (0.04, 0.0)
) -> list[Part]:
    pupil = (x + look[0], y + look[1])
    return [Disc((x, y), "white", size), Disc(pupil, "ink", 0.54 * size)]


def _rectangle(left: float, top: float, right: float, bottom: float, fill: str) -> Polygon:
    return Polygon(((left, top), (right, top), (right, bottom), (left, bottom)), fill)


_EYES = (*_eye_parts(0.14, -0.18), *_eye_parts(0.14, 0.18))
_EYES_BACK = (*_eye_parts(0.0, -0.19), *_eye_parts(0.0, 0.19))

HEADS: dict[str, tuple[Part, ...]] = {
    "default": _EYES,
    "beluga": (
        Disc((0.12, 0.0), "body", 0.4),
        *_eye_parts(0.1, -0.2, 0.08), *_eye_parts(0.1, 0.2, 0.08),
        Line(((0.36, -0.13), (0.41, 0.0), (0.36, 0.13)), "shade", 0.05),
    ),
    "bendr": (
        _rectangle(-0.12, -0.34, 0.2, 0.34, "ink"),
        *_eye_parts(0.05, -0.17, 0.13), *_eye_parts(0.05, 0.17, 0.13),
        Line(((0.3, -0.16), (0.3, 0.16)), "white", 0.06),
    ),
    "dead": (
        *(Line(((0.06, y - 0.08), (0.22, y + 0.08)), "ink", 0.06) for y in (-0.18, 0.18)),
        *(Line(((0.06, y + 0.08), (0.22, y - 0.08)), "ink", 0.06) for y in (-0.18, 0.18)),
    ),
    "evil": (
        *_eye_parts(0.12, -0.18, 0.14), *_eye_parts(0.12, 0.18, 0.14),
        Line(((-0.04, -0.32), (0.26, -0.1)), "ink", 0.08),
        Line(((-0.04, 0.32), (0.26, 0.1)), "ink", 0.08),
    ),
    "fang": (
        *_EYES_BACK,
        *(
            Polygon(((0.18, y - 0.09), (0.42, 0.8 * y), (0.18, y + 0.09)), "white")
            for y in (-0.15, 0.15)
        ),
    ),
    "pixel": (
        _rectangle(-0.4, -0.4, 0.4, 0.4, "body"),
        *(_rectangle(0.02, y - 0.1, 0.22, y + 0.1, "white") for y in (-0.2, 0.2)),
        *(_rectangle(0.12, y - 0.1, 0.22, y, "ink") for y in (-0.2, 0.2)),
    ),
    "safe": (
        _rectangle(-0.38, -0.4, 0.4, 0.4, "body"),
        _rectangle(-0.28, -0.3, 0.3, 0.3, "shade"),
        Disc((0.01, 0.0), "white", 0.2), Disc((0.01, 0.0), "ink", 0.13),
        Line(((0.01, 0.0), (0.1, -0.1)), "white", 0.05),
    ),
    "sand-worm": (
        Disc((0.08, 0.0), "shade", 0.36), Disc((0.08, 0.0), "ink", 0.27),
        *(
            Polygon(tuple((0.08 + r * c, r * s) for r, c, s in corners), "white")
            for corners in (
                ((0.29, 0.98, -0.2), (0.1, 1.0, 0.0), (0.29, 0.98, 0.2)),
                ((0.29, 0.5, 0.87), (0.1, 0.31, 0.95), (0.29, 0.11, 0.99)),
                ((0.29, 0.5, -0.87), (0.1, 0.31, -0.95), (0.29, 0.11, -0.99)),
                ((0.29, -0.68, 0.73), (0.1, -0.81, 0.59), (0.29, -0.91, 0.42)),
                ((0.29, -0.68, -0.73), (0.1, -0.81, -0.59), (0.29, -0.91, -0.42)),
            )
        ),
    ),
    "shades": (
        Line(((0.14, -0.3), (0.14, 0.3)), "ink", 0.1),
        Disc((0.14, -0.18), "ink", 0.15), Disc((0.14, 0.18), "ink", 0.15),
        Line(((0.19, -0.24), (0.21, -0.18)), "white", 0.04),
        Line(((0.19, 0.12), (0.21, 0.18)), "white", 0.04),
    ),
    "silly": (
        *_eye_parts(0.12, -0.18, 0.17, (0.05, 0.04)), *_eye_parts(0.16, 0.2, 0.1, (-0.02, -0.03)),
        Line(((0.36, 0.04), (0.5, 0.1), (0.54, 0.18)), "red", 0.12),
    ),
    "smile": (
        *_EYES_BACK,
        Line(((0.12, -0.26), (0.24, -0.18), (0.29, 0.0), (0.24, 0.18), (0.12, 0.26)), "ink", 0.06),
    ),
    "tongue": (
        *_EYES_BACK,
        Line(((0.34, 0.0), (0.54, 0.0)), "red", 0.07),
        Line(((0.64, -0.09), (0.54, 0.0), (0.64, 0.09)), "red", 0.06),
    ),
}  # fmt: skip
"""Shapes drawn on a round head of radius 0.4, keyed by official head name."""


def _rattle_parts(sizes: Sequence[float]) -> tuple[Part, ...]:
    parts: list[Part] = []
    x = -0.05
    for size in sizes:
        x += size
        parts += [Disc((x, 0.0), "shade", size), Disc((x - 0.02, 0.0), "body", size * 0.8)]
        x += size * 0.4
    return tuple(parts)


TAILS: dict[str, tuple[Part, ...]] = {
    "default": (),
    "block-bum": (_rectangle(-0.2, -0.32, 0.32, 0.32, "body"),),
    "bolt": (
        Polygon(
            ((-0.2, -0.16), (0.16, -0.3), (0.08, -0.07), (0.5, -0.16), (-0.02, 0.32), (0.06, 0.08),
             (-0.2, 0.16)),
            "body",
        ),
    ),
    "curled": (
        Line(
            ((-0.1, 0.0), (0.2, 0.06), (0.36, -0.08), (0.3, -0.28), (0.1, -0.32), (0.02, -0.18),
             (0.14, -0.1)),
            "body", 0.13,
        ),
    ),
    "fat-rattle": _rattle_parts((0.2, 0.16, 0.11)),
    "freckled": (
        Disc((0.04, 0.0), "body", 0.3),
        *(Disc(spot, "shade", 0.055)
          for spot in ((0.18, -0.1), (0.02, -0.17), (0.06, 0.04), (0.2, 0.12), (-0.04, 0.2))),
    ),
    "hook": (
        Line(((-0.1, 0.0), (0.24, 0.0), (0.38, -0.12), (0.34, -0.3), (0.14, -0.34)), "body", 0.13),
    ),
    "pixel": (
        _rectangle(-0.2, -0.3, 0.08, 0.3, "body"),
        _rectangle(0.08, -0.2, 0.26, 0.2, "body"),
        _rectangle(0.26, -0.1, 0.44, 0.1, "body"),
    ),
    "round-bum": (Disc((0.0, 0.0), "body", 0.36),),
    "sharp": (Polygon(((-0.2, -0.3), (0.48, 0.0), (-0.2, 0.3)), "body"),),
    "skinny": (Line(((-0.1, 0.0), (0.42, 0.0)), "body", 0.1),),
    "small-rattle": _rattle_parts((0.13, 0.11, 0.08)),
}  # fmt: skip
"""Shapes at the end of a body with a half-width of about 0.2, keyed by official tail name."""
