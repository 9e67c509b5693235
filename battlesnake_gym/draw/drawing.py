"""SVG and PNG images of boards, which are painted from the same list of shapes.

`svg` returns the image that notebooks show, `image` returns a Pillow image, and `save_png` writes a
file. `battlesnake_gym.draw.animation` creates animations.

* Heads face the direction of movement. A tail that will move on the next turn is pointed. A stacked
  tail is round and ringed.
* `battlesnake_gym.draw.customization` defines colors, heads and tails.
* Hazards are shaded. Stacked hazard layers are darker, and a digit shows the number of layers.
* A snake that was eliminated on the current turn is pale, and a cross marks its head.
* The panel beside the board shows each snake's health and length, or the cause of its elimination.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.untrusted_text import replace_unsafe
from battlesnake_gym.draw import customization
from battlesnake_gym.draw.customization import (
    INK,
    RED,
    Disc,
    Line,
    Polygon,
    Shape,
    Text,
    blend,
    place,
)
from battlesnake_gym.rules.state import MAX_HEALTH, Point, Snake, State

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

PALE_COLOR, PAPER_COLOR, _BOARD_COLOR, CELL_COLOR = "#7b8494", "#ffffff", "#e9ecf1", "#f8f9fb"
FOOD_COLOR, HAZARD_COLOR, ELIMINATION_COLOR, TRACK_COLOR = RED, "#4a4e69", "#b00020", "#dfe3ea"
MARGIN = 0.4
PANEL_WIDTH = 7.0
ROW_HEIGHT = 1.5
_OVERSAMPLING_FACTOR = 3
"""Supersampling factor in x and y, which smooths edges."""


def svg(board: State, cell_size: int = 28) -> str:
    """Return the board as an SVG document.

    Args:
        board: Position to draw.
        cell_size: Size of a cell, in pixels.
    """
    width, height = (side * cell_size for side in _image_size(board))
    body = "".join(_shape_to_svg(shape, cell_size) for shape in shapes(board))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="turn {board.turn}" '
        f'font-family="system-ui, sans-serif">{body}</svg>'
    )


def image(
    board: State, cell_size: int = 28, win_probabilities: Mapping[str, float] | None = None
) -> Image.Image:
    """Return the board as a Pillow image (mode RGB).

    Args:
        board: Position to draw.
        cell_size: Size of a cell, in pixels.
        win_probabilities: Win probabilities by snake id, drawn as a bar.
    """
    width, height = (round(side * cell_size) for side in _image_size(board))
    canvas = _paint_background(_background_shapes(board), width, height, cell_size).copy()
    _paint_shapes(canvas, _foreground_shapes(board, win_probabilities), cell_size)
    return canvas.reduce(_OVERSAMPLING_FACTOR)


@functools.lru_cache(maxsize=4)
def _paint_background(
    shapes: tuple[Shape, ...], width: int, height: int, cell_size: int
) -> Image.Image:
    """Return an oversampled image with the shapes of the background."""
    from PIL import Image

    size = width * _OVERSAMPLING_FACTOR, height * _OVERSAMPLING_FACTOR
    canvas = Image.new("RGB", size, PAPER_COLOR)
    _paint_shapes(canvas, shapes, cell_size)
    return canvas


def save_png(board: State, path: str | os.PathLike[str], cell_size: int = 28) -> None:
    """Write the board as a PNG file, atomically.

    Args:
        board: Position to draw.
        path: Output file.
        cell_size: Size of a cell, in pixels.
    """
    write_atomically(path, lambda temporary: image(board, cell_size).save(temporary, "PNG"))


def shapes(board: State, win_probabilities: Mapping[str, float] | None = None) -> list[Shape]:
    """Return all shapes of the image in cells, with y downwards, from back to front."""
    return [*_background_shapes(board), *_foreground_shapes(board, win_probabilities)]


def _background_shapes(board: State) -> tuple[Shape, ...]:
    """Return the shapes of the cells and hazards."""
    layers = Counter(filter(board.inside, board.hazards))
    return _ground_shapes(
        board.width, board.height, _image_size(board), tuple(sorted(layers.items()))
    )


def _foreground_shapes(
    board: State, win_probabilities: Mapping[str, float] | None = None
) -> list[Shape]:
    """Return the shapes of snakes, food, the panel and the win probability bar."""
    found: list[Shape] = []
    colors = customization.assign_colors(board.snakes)
    snakes = list(zip(board.snakes, colors, strict=True))
    for snake, color in snakes:
        if not snake.alive and snake.eliminated_on == board.turn:
            found += _body_shapes(board, snake, blend(color, CELL_COLOR, 0.25))
    found += [
        shape
        for cell in filter(board.inside, board.food)
        for shape in _food_shapes(_cell_center(board, cell))
    ]
    for snake, color in snakes:
        if snake.alive:
            found += _body_shapes(board, snake, color) + _head_shapes(board, snake, color)
    for snake in board.snakes:
        if not snake.alive:
            found += _cross_shapes(board, snake)
    return (
        found
        + _panel_shapes(board, colors)
        + _win_probability_bar(board, colors, win_probabilities or {})
    )


def _image_size(board: State) -> tuple[float, float]:
    rows = max(board.height, 1 + ROW_HEIGHT * len(board.snakes))
    return board.width + PANEL_WIDTH + 2 * MARGIN, rows + 2 * MARGIN


def _cell_center(board: State, cell: Point) -> tuple[float, float]:
    return MARGIN + cell[0] + 0.5, MARGIN + board.height - cell[1] - 0.5


def _box_shape(
    x: float, y: float, width: float, height: float, fill: str, radius: float = 0.0
) -> Polygon:
    return Polygon(((x, y), (x + width, y + height)), fill, radius)


@functools.lru_cache(maxsize=4)
def _ground_shapes(
    width: int, height: int, size: tuple[float, float], hazards: tuple[tuple[Point, int], ...]
) -> tuple[Shape, ...]:
    found: list[Shape] = [_box_shape(0, 0, *size, PAPER_COLOR, 0.3)]
    found.append(_box_shape(MARGIN, MARGIN, width, height, _BOARD_COLOR, 0.2))
    layers = dict(hazards)
    for cell in itertools.product(range(width), range(height)):
        x, y = MARGIN + cell[0] + 0.5, MARGIN + height - cell[1] - 0.5
        num_layers = layers.get(cell, 0)
        fill = (
            blend(HAZARD_COLOR, CELL_COLOR, min(0.2 + 0.15 * num_layers, 0.8))
            if num_layers
            else CELL_COLOR
        )
        found.append(_box_shape(x - 0.47, y - 0.47, 0.94, 0.94, fill, 0.12))
        if num_layers > 1:
            found.append(Text((x + 0.4, y + 0.28), PAPER_COLOR, str(num_layers), 0.36, "end"))
    return tuple(found)


def _food_shapes(center: tuple[float, float]) -> list[Shape]:
    x, y = center
    return [
        Disc(center, FOOD_COLOR, 0.26),
        Disc((x - 0.08, y - 0.08), blend(PAPER_COLOR, FOOD_COLOR, 0.5), 0.07),
    ]


def _body_shapes(board: State, snake: Snake, fill: str) -> list[Shape]:
    """Return the shapes of a body from tail to head.

    On a wrapped board, the body is split at the edges.
    """
    body = [cell for cell, _ in itertools.groupby(snake.body)]
    stays = len(snake.body) > 1 and snake.body[-1] == snake.body[-2]
    tail = customization.tail_parts(snake.customizations.get("tail", ""))
    strokes = _body_lines(board, body)
    found: list[Shape] = []
    for points in strokes:
        if points is strokes[-1] and (tail or not stays) and len(points) > 1:
            found += _tail_segment(points[-2], points[-1], fill, 0.2 if tail else 0.1)
            points = points[:-1]
        found.append(
            Line(tuple(points), fill, 0.6) if len(points) > 1 else Disc(points[0], fill, 0.3)
        )
    if tail and len(strokes[-1]) > 1:
        (x, y), end = strokes[-1][-2:]
        ahead = (float((end[0] > x) - (end[0] < x)), float((end[1] > y) - (end[1] < y)))
        found += [place(part, end, ahead, customization.fill_colors(fill)) for part in tail]
    if stays and len(body) > 1:
        found.append(Disc(_cell_center(board, body[-1]), blend(PAPER_COLOR, fill, 0.65), 0.13))
    return [*found, Disc(_cell_center(board, snake.head), fill, 0.4)]


def _body_lines(board: State, body: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Return the points of each line of a body, from the head end to the tail end."""
    strokes = [[_cell_center(board, body[0])]]
    for ahead, cell in itertools.pairwise(body):
        dx, dy = cell[0] - ahead[0], cell[1] - ahead[1]
        if abs(dx) + abs(dy) == 1:
            strokes[-1].append(_cell_center(board, cell))
            continue
        x, y = _cell_center(board, ahead)
        here, there = _cell_center(board, cell), (0.0, 0.0)
        if dy == 0 and abs(dx) == board.width - 1:
            there = (-0.2 if dx > 0 else 0.2, 0.0)
        elif dx == 0 and abs(dy) == board.height - 1:
            there = (0.0, 0.2 if dy > 0 else -0.2)
        strokes[-1].append((x + there[0], y + there[1]))
        strokes.append([(here[0] - there[0], here[1] - there[1]), here])
    return strokes


def _tail_segment(
    base: tuple[float, float], tip: tuple[float, float], fill: str, half: float
) -> list[Shape]:
    """Return the last segment of a body, which narrows to ``half`` at the tip."""
    (x, y), (end_x, end_y) = base, tip
    size = abs(end_x - x) + abs(end_y - y) or 1.0
    across = ((y - end_y) / size, (end_x - x) / size)
    corners = (
        (x + 0.3 * across[0], y + 0.3 * across[1]),
        (end_x + half * across[0], end_y + half * across[1]),
        (end_x - half * across[0], end_y - half * across[1]),
        (x - 0.3 * across[0], y - 0.3 * across[1]),
    )
    return [Polygon(corners, fill), Disc(tip, fill, half)]


def _head_direction(snake: Snake) -> tuple[float, float]:
    """Return the direction of a head as (dx, dy) in image coordinates.

    The direction of a stacked body is up.
    """
    if len(snake.body) < 2 or snake.body[0] == snake.body[1]:
        return 0.0, -1.0
    (x, y), (neck_x, neck_y) = snake.body[:2]
    dx, dy = x - neck_x, y - neck_y
    # In a wrapped ruleset, the head may have crossed an edge of the board.
    across = -1 if abs(dx) + abs(dy) > 1 else 1
    return float(across * ((dx > 0) - (dx < 0))), float(-across * ((dy > 0) - (dy < 0)))


def _head_shapes(board: State, snake: Snake, color: str) -> list[Shape]:
    """Return the shapes of the head selected by the snake's customization."""
    center, ahead = _cell_center(board, snake.head), _head_direction(snake)
    parts = customization.head_parts(snake.customizations.get("head", ""))
    return [place(part, center, ahead, customization.fill_colors(color)) for part in parts]


def _cross_shapes(board: State, snake: Snake) -> list[Shape]:
    """Return the shapes of a cross on an eliminated snake's head.

    The cross is pale after the turn of the elimination.
    """
    if not snake.body:
        return []
    x, y = _cell_center(board, snake.head)
    fresh = snake.eliminated_on == board.turn
    fill = ELIMINATION_COLOR if fresh else blend(INK, CELL_COLOR, 0.25)
    arm, width = (0.3, 0.14) if fresh else (0.16, 0.08)
    return [
        Line(((x - arm, y - arm), (x + arm, y + arm)), fill, width),
        Line(((x - arm, y + arm), (x + arm, y - arm)), fill, width),
    ]


def _panel_shapes(board: State, colors: Sequence[str]) -> list[Shape]:
    """Return the shapes of the panel: the turn number and one row per snake."""
    left, top, width = 2 * MARGIN + board.width + 0.2, MARGIN, PANEL_WIDTH - 0.8
    found: list[Shape] = [Text((left, top + 0.4), PALE_COLOR, f"turn {board.turn}", 0.5)]
    for i, (snake, color) in enumerate(zip(board.snakes, colors, strict=True)):
        y = top + 1.3 + ROW_HEIGHT * i
        fill = color if snake.alive else blend(color, PAPER_COLOR, 0.35)
        name = snake.name or snake.id
        shown = name if len(name) <= 12 else name[:11] + "…"
        found += [
            Disc((left + 0.22, y), fill, 0.22),
            Text((left + 0.62, y), INK if snake.alive else PALE_COLOR, shown, 0.5),
            _box_shape(left, y + 0.4, width, 0.24, TRACK_COLOR, 0.12),
        ]
        if not snake.alive:
            cause = f"{snake.eliminated_cause}, turn {snake.eliminated_on}"
            found[-1] = Text((left + 0.62, y + 0.55), PALE_COLOR, cause, 0.4)
            continue
        right = left + width
        found.append(Text((right - 1.5, y), PALE_COLOR, f"len {snake.length}", 0.42, "end"))
        found.append(Text((right, y), PALE_COLOR, f"hp {snake.health}", 0.42, "end"))
        fraction = max(0, min(snake.health, MAX_HEALTH)) / MAX_HEALTH
        if fraction:
            found.append(_box_shape(left, y + 0.4, max(width * fraction, 0.24), 0.24, fill, 0.12))
    return found


def _win_probability_bar(
    board: State, colors: Sequence[str], win_probabilities: Mapping[str, float]
) -> list[Shape]:
    """Return the shapes of a bar that is divided among the snakes by win probability."""
    found: list[Shape] = []
    x, y = 2 * MARGIN + board.width + 0.2, MARGIN + 0.75 + ROW_HEIGHT * len(board.snakes)
    for snake, color in zip(board.snakes, colors, strict=True):
        probability = win_probabilities.get(snake.id, 0.0)
        width = probability * (PANEL_WIDTH - 0.8)
        found.append(_box_shape(x, y, width, 0.6, color))
        if probability > 0.2:
            label = f"{'~' * bool(probability % 1)}{probability:.0%}"
            found.append(Text((x + width / 2, y + 0.3), PAPER_COLOR, label, 0.42, "middle"))
        x += width
    return found


def _shape_to_svg(shape: Shape, scale: float) -> str:
    match shape:
        case Polygon(((x, y), (right, bottom)), fill, radius):
            width, height = (right - x) * scale, (bottom - y) * scale
            return (
                f'<rect x="{x * scale:.1f}" y="{y * scale:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}" rx="{radius * scale:.1f}" fill="{fill}"/>'
            )
        case Polygon(points, fill):
            return f'<polygon points="{_svg_points(points, scale)}" fill="{fill}"/>'
        case Line(points, fill, width):
            return (
                f'<polyline points="{_svg_points(points, scale)}" fill="none" stroke="{fill}" '
                f'stroke-width="{width * scale:.1f}" stroke-linecap="round" '
                'stroke-linejoin="round"/>'
            )
        case Disc((x, y), fill, radius):
            return (
                f'<circle cx="{x * scale:.1f}" cy="{y * scale:.1f}" r="{radius * scale:.1f}" '
                f'fill="{fill}"/>'
            )
        case Text((x, y), fill, text, size, anchor):
            return (
                f'<text x="{x * scale:.1f}" y="{y * scale:.1f}" fill="{fill}" '
                f'font-size="{size * scale:.1f}" text-anchor="{anchor}" '
                f'dominant-baseline="central">{escape(replace_unsafe(text))}</text>'
            )


def _svg_points(points: Iterable[tuple[float, float]], scale: float) -> str:
    return " ".join(f"{x * scale:.1f},{y * scale:.1f}" for x, y in points)


def _paint_shapes(canvas: Image.Image, shapes: Iterable[Shape], cell_size: int) -> None:
    """Paint shapes on an oversampled image, from back to front."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(canvas)
    for shape in shapes:
        _paint(draw, shape, cell_size * _OVERSAMPLING_FACTOR)


def _paint(draw: ImageDraw.ImageDraw, shape: Shape, scale: float) -> None:
    """Paint one shape.

    Args:
        draw: Drawing context of the image.
        shape: Shape to paint, in cells.
        scale: Size of a cell, in pixels of the image.
    """
    match shape:
        case Polygon((first, last), fill, radius):
            draw.rounded_rectangle(
                [*_scale_point(first, scale), *_scale_point(last, scale)], radius * scale, fill
            )
        case Polygon(points, fill):
            draw.polygon([_scale_point(point, scale) for point in points], fill)
        case Line(points, fill, width):
            draw.line([_scale_point(point, scale) for point in points], fill, round(width * scale))
            for point in points:
                _paint(draw, Disc(point, fill, width / 2), scale)
        case Disc((x, y), fill, radius):
            first, last = (x - radius, y - radius), (x + radius, y + radius)
            draw.ellipse([*_scale_point(first, scale), *_scale_point(last, scale)], fill)
        case Text(origin, fill, text, size, anchor):
            x, y = _scale_point(origin, scale)
            mask, left, top = _text_mask(text, round(size * scale))
            left -= {"start": 0, "middle": mask.width // 2, "end": mask.width}[anchor]
            draw.bitmap((round(x) + left, round(y) + top), mask, fill)


@functools.lru_cache(maxsize=512)
def _text_mask(text: str, size: int) -> tuple[Image.Image, int, int]:
    """Return the mask of a text, and the offset (x, y) of the mask in pixels.

    The offset is relative to the left end of the text at half the text height.
    """
    from PIL import Image, ImageDraw

    font = _load_font(max(1, size))
    left, top, right, bottom = map(round, font.getbbox(text, anchor="lm"))
    mask = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(mask).text((-left, -top), text, 255, font, anchor="lm")
    return mask, left, top


@functools.lru_cache(maxsize=32)
def _load_font(size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font


def _scale_point(point: tuple[float, float], scale: float) -> tuple[float, float]:
    # Without rounding, a shape that moves by whole cells could cover other pixels.
    return round(point[0] * scale, 3), round(point[1] * scale, 3)
