"""How snakes look, in pictures and on pages alike: their colours, heads and tails.

`colors` gives each snake of a game a colour that distinguishes it from the others. `HEADS` and
`TAILS` are drawn after the official names, in shapes of our own: around (0, 0), in cells, looking
to the right with y downwards; a tail looks away from its body. What a part is filled with is named:
``body`` (the snake's colour), ``shade`` (a darker one), ``white``, ``ink`` or ``red``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from battlesnake_gym.draw.shapes import Disc, Line, Part, Polygon
from battlesnake_gym.rules.state import Snake

PALETTE = (
    "#2f6fde", "#e4572e", "#2a9d5c", "#a04ad1", "#e0a100", "#12a5b8", "#d63384", "#7a5c3e",
    "#ee99ff", "#005500", "#55dd00", "#770066", "#ff00ff", "#224477", "#aaccbb", "#0000cc",
)  # fmt: skip
"""Colours of snakes that bring none, or one that another has already; no two of them are near."""

MIN_COLOR_DISTANCE = 0.1
"""Distance in OKLab below which two colours are taken for the same; black to white is 1."""

INK, WHITE, RED = "#1f2430", "#ffffff", "#e5383b"
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}|#[0-9a-fA-F]{3}")


def colors(snakes: Sequence[Snake]) -> list[str]:
    """The colours of the snakes of one game, in their order, as ``#rrggbb``; no two are near.

    A snake keeps the hex colour that it brings (``customizations``) unless one before it brought
    the same or nearly the same; all others get what `PALETTE` has for their place or, where that is
    taken, the next that is free. Beyond the palette, shades of it are given out.

    >>> bring = [Snake(name, [(0, 0)], customizations={"color": "#888888"}) for name in "ab"]
    >>> colours([*bring, Snake("c", [(0, 0)])])
    ['#888888', '#e4572e', '#2a9d5c']
    """
    found: dict[int, str] = {}
    for i, snake in enumerate(snakes):
        own = snake.customizations.get("color", "")
        if _COLOUR.fullmatch(own) and _is_new(_long(own), found.values()):
            found[i] = _long(own)
    for i in range(len(snakes)):
        if i not in found:
            found[i] = _free(i, list(found.values()))
    return [found[i] for i in range(len(snakes))]


def _free(index: int, taken: Sequence[str]) -> str:
    """The palette's colour for this place, else the next that is not near one of ``taken``."""
    start = index % len(PALETTE)
    for candidate in (*PALETTE[start:], *PALETTE[:start]):
        if _is_new(candidate, taken):
            return candidate
    return max(_shades(), key=lambda shade: min(_distance(shade, other) for other in taken))


def _is_new(colour: str, taken: Any) -> bool:
    return all(_distance(colour, other) >= MIN_COLOR_DISTANCE for other in taken)


@functools.cache
def _shades() -> tuple[str, ...]:
    """Colours from all over the cube, some of which are far from any dozens of others."""
    steps = range(0, 256, 51)
    return tuple(
        f"#{red:02x}{green:02x}{blue:02x}" for red in steps for green in steps for blue in steps
    )


def mix(top: str, bottom: str, share: float) -> str:
    """``share`` of the colour ``top`` laid over ``bottom``.

    >>> mix("#ff0000", "#ffffff", 0.5)
    '#ff8080'
    """
    pairs = zip(_channels(top), _channels(bottom), strict=True)
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def _long(colour: str) -> str:
    """``#f80`` as ``#ff8800``."""
    return "#" + "".join(f"{channel:02x}" for channel in _channels(colour))


def _channels(colour: str) -> tuple[int, int, int]:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


def _distance(one: str, other: str) -> float:
    """How different two colours look: their distance in OKLab (Ottosson, 2020)."""
    pairs = zip(_oklab(one), _oklab(other), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


@functools.lru_cache(maxsize=1024)
def _oklab(colour: str) -> tuple[float, float, float]:
    r, g, b = (_linear(channel / 255) for channel in _channels(colour))
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _linear(channel: float) -> float:
    return float(channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)


# --- heads and tails ----------------------------------------------------------------------------


def fills(colour: str) -> dict[str, str]:
    """What the parts of a snake of this colour are filled with, by name."""
    return {
        "body": colour, "shade": mix(INK, colour, 0.35), "white": WHITE, "ink": INK, "red": RED,
    }  # fmt: skip


def head(name: str) -> tuple[Part, ...]:
    """What is painted on the round head of a snake that asks for this head."""
    return HEADS.get(name, HEADS["default"])


def tail(name: str) -> tuple[Part, ...]:
    """What is painted at the end of a body that asks for this tail; nothing: it is pointed."""
    return TAILS.get(name, TAILS["default"])


def to_json(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The parts for the pages' board: ``points`` or a ``centre``, ``fill``, ``radius``, ``width``.

    >>> to_json([Disc((0.1, 0.2), "ink", 0.3)])
    [{'centre': (0.1, 0.2), 'fill': 'ink', 'radius': 0.3}]
    """
    return [{name: getattr(part, name) for name in part.__slots__} for part in parts]


def _eye(
    x: float, y: float, size: float = 0.12, look: tuple[float, float] = (0.04, 0.0)
) -> list[Part]:
    pupil = (x + look[0], y + look[1])
    return [Disc((x, y), "white", size), Disc(pupil, "ink", 0.54 * size)]


def _rect(left: float, top: float, right: float, bottom: float, fill: str) -> Polygon:
    return Polygon(((left, top), (right, top), (right, bottom), (left, bottom)), fill)


_EYES = (*_eye(0.14, -0.18), *_eye(0.14, 0.18))
_EYES_BACK = (*_eye(0.0, -0.19), *_eye(0.0, 0.19))

HEADS: dict[str, tuple[Part, ...]] = {
    "default": _EYES,
    "beluga": (
        Disc((0.12, 0.0), "body", 0.4),
        *_eye(0.1, -0.2, 0.08), *_eye(0.1, 0.2, 0.08),
        Line(((0.36, -0.13), (0.41, 0.0), (0.36, 0.13)), "shade", 0.05),
    ),
    "bendr": (
        _rect(-0.12, -0.34, 0.2, 0.34, "ink"),
        *_eye(0.05, -0.17, 0.13), *_eye(0.05, 0.17, 0.13),
        Line(((0.3, -0.16), (0.3, 0.16)), "white", 0.06),
    ),
    "dead": (
        *(Line(((0.06, y - 0.08), (0.22, y + 0.08)), "ink", 0.06) for y in (-0.18, 0.18)),
        *(Line(((0.06, y + 0.08), (0.22, y - 0.08)), "ink", 0.06) for y in (-0.18, 0.18)),
    ),
    "evil": (
        *_eye(0.12, -0.18, 0.14), *_eye(0.12, 0.18, 0.14),
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
        _rect(-0.4, -0.4, 0.4, 0.4, "body"),
        *(_rect(0.02, y - 0.1, 0.22, y + 0.1, "white") for y in (-0.2, 0.2)),
        *(_rect(0.12, y - 0.1, 0.22, y, "ink") for y in (-0.2, 0.2)),
    ),
    "safe": (
        _rect(-0.38, -0.4, 0.4, 0.4, "body"),
        _rect(-0.28, -0.3, 0.3, 0.3, "shade"),
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
        *_eye(0.12, -0.18, 0.17, (0.05, 0.04)), *_eye(0.16, 0.2, 0.1, (-0.02, -0.03)),
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
"""What is painted on a round head of radius 0.4, by the official name."""


def _rattle(sizes: Sequence[float]) -> tuple[Part, ...]:
    parts: list[Part] = []
    place = -0.05
    for size in sizes:
        place += size
        parts += [Disc((place, 0.0), "shade", size), Disc((place - 0.02, 0.0), "body", size * 0.8)]
        place += size * 0.4
    return tuple(parts)


TAILS: dict[str, tuple[Part, ...]] = {
    "default": (),
    "block-bum": (_rect(-0.2, -0.32, 0.32, 0.32, "body"),),
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
    "fat-rattle": _rattle((0.2, 0.16, 0.11)),
    "freckled": (
        Disc((0.04, 0.0), "body", 0.3),
        *(Disc(spot, "shade", 0.055)
          for spot in ((0.18, -0.1), (0.02, -0.17), (0.06, 0.04), (0.2, 0.12), (-0.04, 0.2))),
    ),
    "hook": (
        Line(((-0.1, 0.0), (0.24, 0.0), (0.38, -0.12), (0.34, -0.3), (0.14, -0.34)), "body", 0.13),
    ),
    "pixel": (
        _rect(-0.2, -0.3, 0.08, 0.3, "body"),
        _rect(0.08, -0.2, 0.26, 0.2, "body"),
        _rect(0.26, -0.1, 0.44, 0.1, "body"),
    ),
    "round-bum": (Disc((0.0, 0.0), "body", 0.36),),
    "sharp": (Polygon(((-0.2, -0.3), (0.48, 0.0), (-0.2, 0.3)), "body"),),
    "skinny": (Line(((-0.1, 0.0), (0.42, 0.0)), "body", 0.1),),
    "small-rattle": _rattle((0.13, 0.11, 0.08)),
}  # fmt: skip
"""What is painted where a body of half a width of about 0.2 ends, by the official name."""
