"""Draw the diagrams of the documentation: `python tools/draw_diagrams.py`.

Each text file in `docs/diagrams` becomes an SVG file of the same name in `docs/images`. A line of a
text file is one of:

    title TEXT
    box NAME COLUMN ROW FIRST LINE | SECOND LINE
    arrow FROM TO LABEL
    group NAME NAME ...: TITLE

Columns and rows may be fractions. A group draws a frame around boxes.
"""

from __future__ import annotations

import math
import sys
from html import escape
from pathlib import Path

_DOCS = Path(__file__).parents[1] / "docs"
_CELL, _BOX = (262, 112), (184, 54)
"""Width and height of a grid cell and of a box, in pixels."""

_MARGIN = 34
_SHIFT = 11
"""Distance of an arrow from the center line, if another arrow points back, in pixels."""

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2733; text-anchor: middle }
.label { font-size: 12px; paint-order: stroke; stroke: #fff; stroke-width: 5px }
.head { font-weight: 600 }
.frame { fill: #f2f6fb; stroke: #9db2c9; stroke-dasharray: 5 4 }
.box { fill: #fff; stroke: #2f6fde; stroke-width: 1.5 }
line { stroke: #44586c; stroke-width: 1.5; marker-end: url(#tip) }
"""

Point = tuple[float, float]


def draw(text: str) -> str:
    """Return the SVG of a diagram."""
    title, labels = "", dict[str, str]()
    centers: dict[str, Point] = {}
    arrows: list[tuple[str, str, str]] = []
    groups: list[tuple[list[str], str]] = []
    for line in filter(None, text.splitlines()):
        kind, _, rest = line.partition(" ")
        if kind == "title":
            title = rest
        elif kind == "box":
            name, column, row, label = rest.split(" ", 3)
            labels[name] = label
            centers[name] = (
                _MARGIN + _BOX[0] / 2 + float(column) * _CELL[0],
                _MARGIN + _BOX[1] / 2 + float(row) * _CELL[1],
            )
        elif kind == "arrow":
            start, end, *label_words = rest.split(" ")
            arrows.append((start, end, " ".join(label_words)))
        elif kind == "group":
            names, _, label = rest.partition(": ")
            groups.append((names.split(), label))
        else:
            raise ValueError(f"{line!r} starts with none of title, box, arrow, group")
    width = max(x for x, _ in centers.values()) + _BOX[0] / 2 + _MARGIN
    height = max(y for _, y in centers.values()) + _BOX[1] / 2 + _MARGIN
    tip = '<path d="M0 0L9 4L0 8z" fill="#44586c"/>'
    both = {(start, end) for start, end, _ in arrows}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<marker id="tip" markerWidth="9" markerHeight="8" refX="9" refY="4" orient="auto" '
        f'markerUnits="userSpaceOnUse">{tip}</marker>',
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#fff"/>',
        *(_frame([centers[name] for name in names], label) for names, label in groups),
        *(
            _arrow(centers[start], centers[end], label, _SHIFT if (end, start) in both else 0)
            for start, end, label in arrows
        ),
        *(_box(centers[name], label) for name, label in labels.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(members: list[Point], label: str) -> str:
    left = min(x for x, _ in members) - _BOX[0] / 2 - 14
    top = min(y for _, y in members) - _BOX[1] / 2 - 26
    width = max(x for x, _ in members) + _BOX[0] / 2 + 14 - left
    height = max(y for _, y in members) + _BOX[1] / 2 + 14 - top
    place = f'x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
    return (
        f'<rect class="frame" {place} rx="8"/>'
        f'<text class="head" x="{left + width / 2:g}" y="{top + 17:g}">{escape(label)}</text>'
    )


def _box(center: Point, label: str) -> str:
    x, y = center
    lines = [line.strip() for line in label.split("|")]
    shown = []
    for number, line in enumerate(lines):
        kind = "body" if number else "head"
        height = y + 4.5 + 17 * (number - (len(lines) - 1) / 2)
        shown.append(f'<text class="{kind}" x="{x:g}" y="{height:g}">{escape(line)}</text>')
    corner = f'x="{x - _BOX[0] / 2:g}" y="{y - _BOX[1] / 2:g}"'
    return (
        f'<rect class="box" {corner} width="{_BOX[0]}" height="{_BOX[1]}" rx="6"/>{"".join(shown)}'
    )


def _arrow(start: Point, end: Point, label: str, shift: float) -> str:
    """Draw an arrow between the borders of two boxes, to the left of the center line."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = math.hypot(across, down)
    aside = shift * down / length, -shift * across / length
    reach = min(
        _BOX[0] / 2 / abs(across) if across else math.inf,
        _BOX[1] / 2 / abs(down) if down else math.inf,
    )
    x1, y1 = start[0] + across * reach + aside[0], start[1] + down * reach + aside[1]
    x2, y2 = end[0] - across * reach + aside[0], end[1] - down * reach + aside[1]
    middle = (x1 + x2) / 2 + 3 * aside[0], (y1 + y2) / 2 + 1.5 * aside[1]
    above = -7 if not shift and abs(down) < 1 else 4
    place = f'x="{middle[0]:.1f}" y="{middle[1] + above:.1f}"'
    text = f'<text class="label" {place}>{escape(label)}</text>'
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>{text}'


def main() -> int:
    """Draw all diagrams."""
    for path in sorted((_DOCS / "diagrams").glob("*.txt")):
        (_DOCS / "images" / f"{path.stem}.svg").write_text(draw(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
