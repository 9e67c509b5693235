"""Animations of games that repaint only changed tiles and store one board.

The image is divided into tiles: the cells of the board and the rows of the snake list. A tile is
repainted only if the shapes of the tile have changed since the previous turn. Painted tiles are
cached, because most tiles repeat an earlier tile. `Animation.draw` produces the same pixels as
`drawing.image`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

from PIL import GifImagePlugin, Image, ImageDraw

from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.draw import customization, drawing
from battlesnake_gym.draw.shapes import Disc, Line, Polygon, Shape, Text
from battlesnake_gym.rules.state import State

DEFAULT_CELL_SIZE = 20
"""Default size of a cell, in pixels."""

_TURN_DURATION_S = 0.15
_FINAL_FRAME_DURATION_S = 2.0
"""Duration of the last frame of an animation, in seconds."""

_MAX_CACHED_TILES = 1024
"""Maximum number of cached tiles, which bounds the memory for long games."""

_NUM_SAMPLED_COLORS, _TRANSPARENT_INDEX = 180, 255
"""Number of sampled palette colors, and the index of the transparent color."""


WinProbabilities = Callable[[int], Mapping[str, float] | None]


def no_win_probabilities(turn: int) -> None:
    """Return None as the win probabilities of a game that was not analyzed."""


class _PixelBox(NamedTuple):
    """A rectangle of an image, in pixels."""

    left: int
    top: int
    right: int
    bottom: int


class Animation:
    """Image of a board that is updated turn by turn.

    All boards must have the same size and the same snakes.

    Args:
        cell_size: Size of a cell, in pixels.
        win_probabilities: Function that returns the win probabilities of a turn by snake id, or
            None.
    """

    def __init__(
        self,
        cell_size: int = DEFAULT_CELL_SIZE,
        win_probabilities: WinProbabilities = no_win_probabilities,
    ) -> None:
        self._cell_size = cell_size
        self._win_probabilities = win_probabilities
        self._cache: dict[object, Image.Image] = {}
        self._shown: list[list[Shape]] = []
        self._tiles: list[_PixelBox] = []
        self._columns = self._rows = 0
        self._background: tuple[Shape, ...] = ()
        self._background_by_tile: list[list[Shape]] = []
        self.picture = Image.new("RGB", (1, 1))

    def draw(self, board: State) -> list[_PixelBox]:
        """Update ``picture`` to show ``board``, and return the rectangles that changed."""
        if not self._shown:
            self._draw_first(board)
            return [_PixelBox(0, 0, *self.picture.size)]
        changed = []
        for index, shapes in enumerate(self._shapes_by_tile(board)):
            if shapes != self._shown[index]:
                self._shown[index] = shapes
                box = self._tiles[index]
                self.picture.paste(self._paint_tile(shapes, box), box)
                changed.append(box)
        return changed

    def _draw_first(self, board: State) -> None:
        """Paint the first image, and divide the image into tiles.

        The tiles are the cells, followed by the rows of the snake list.
        """
        self.picture = drawing.image(board, self._cell_size, self._win_probabilities(board.turn))
        self._columns, self._rows = board.width, board.height
        margin, rows = drawing.MARGIN, range(len(board.snakes))
        # The outer cells include the margin, because a head can extend into the margin.
        xs = [0, *(self._to_pixel(margin + x) for x in range(1, board.width + 1))]
        ys = [0, *(self._to_pixel(margin + y) for y in range(1, board.height)), self.picture.height]
        ends = [0, *(self._to_pixel(margin + 0.8 + drawing.ROW_HEIGHT * row) for row in rows)]
        ends.append(self.picture.height)
        self._tiles = [_PixelBox(x, y, x_end, y_end)
                       for y, y_end in pairwise(ys) for x, x_end in pairwise(xs)]  # fmt: skip
        self._tiles += [_PixelBox(xs[-1], y, self.picture.width, end) for y, end in pairwise(ends)]
        self._shown = self._shapes_by_tile(board)

    def _to_pixel(self, coordinate: float) -> int:
        return round(coordinate * self._cell_size)

    def _shapes_by_tile(self, board: State) -> list[list[Shape]]:
        """Return, for each tile, the shapes that overlap the tile.

        The shapes of a tile are ordered from back to front.
        """
        background = drawing.background_shapes(board)
        if background is not self._background:
            self._background = background
            self._background_by_tile = [[] for _ in range(len(self._tiles))]
            self._add_to_tiles(background, self._background_by_tile)
        found = [shapes[:] for shapes in self._background_by_tile]
        self._add_to_tiles(
            drawing.foreground_shapes(board, self._win_probabilities(board.turn)), found
        )
        return found

    def _add_to_tiles(self, shapes: Iterable[Shape], found: list[list[Shape]]) -> None:
        """Append each shape to the lists of the tiles that the shape overlaps."""
        margin, across, down = drawing.MARGIN, self._columns, self._rows
        rows = range(across * down, len(found))
        # Pillow also paints the pixel at the end coordinate of a shape.
        slack = 1 / (self._cell_size * drawing.OVERSAMPLING_FACTOR)
        for shape in shapes:
            for piece in _split_line(shape):
                left, top, right, bottom = _bounding_box(piece)
                left, top, right, bottom = left - slack, top - slack, right + slack, bottom + slack
                if right >= margin + across:
                    low, high = top * self._cell_size - 1, bottom * self._cell_size + 1
                    for row in rows:
                        if self._tiles[row].top < high and low < self._tiles[row].bottom:
                            found[row].append(piece)
                if left < margin + across:
                    columns = range(max(0, int(left - margin)),
                                    min(across, int(right - margin) + 1))  # fmt: skip
                    for y in range(max(0, int(top - margin)), min(down, int(bottom - margin) + 1)):
                        for x in columns:
                            found[y * across + x].append(piece)

    def _paint_tile(self, shapes: list[Shape], box: _PixelBox) -> Image.Image:
        """Return the painted image of a tile.

        A cached image is reused if the shapes are equal. The canvas has a margin of one cell to
        avoid negative coordinates, which Pillow rounds differently.
        """
        scale = self._cell_size * drawing.OVERSAMPLING_FACTOR
        left, top, right, bottom = (side * drawing.OVERSAMPLING_FACTOR for side in box)
        seen = (left - scale, top - scale, right + scale, bottom + scale)
        relative = tuple(_translate(shape, *(side / scale for side in seen)) for shape in shapes)
        size = right - left, bottom - top
        cached = self._cache.get((size, relative))
        if cached is not None:
            return cached
        canvas = Image.new("RGB", (size[0] + 2 * scale, size[1] + 2 * scale), drawing.PAPER_COLOR)
        draw = ImageDraw.Draw(canvas)
        for shape in relative:
            drawing.paint(draw, shape, scale)
        inner = canvas.crop((scale, scale, scale + size[0], scale + size[1]))
        painted = inner.reduce(drawing.OVERSAMPLING_FACTOR)
        # Rows of the snake list rarely repeat, so only board cells are cached.
        if box.right <= self._tiles[self._columns - 1].right:
            if len(self._cache) >= _MAX_CACHED_TILES:
                self._cache.clear()
            self._cache[size, relative] = painted
        return painted


def save_gif(
    boards: Iterable[State],
    path: str | os.PathLike[str],
    cell_size: int = DEFAULT_CELL_SIZE,
    seconds_per_turn: float = _TURN_DURATION_S,
    win_probabilities: WinProbabilities = no_win_probabilities,
) -> None:
    """Write a game as an endlessly looping GIF that pauses on the last board.

    The function stores only one board in memory at a time.

    Args:
        boards: Boards of the game, in order.
        path: Output file.
        cell_size: Size of a cell, in pixels.
        seconds_per_turn: Duration of a frame, in seconds.
        win_probabilities: Function that returns the win probabilities of a turn by snake id, or
            None.

    Raises:
        ValueError: If ``boards`` is empty.
    """
    remaining = iter(boards)
    first = _first_board(remaining, "GIF")

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            _write_gif(
                file,
                first,
                remaining,
                Animation(cell_size, win_probabilities),
                round(seconds_per_turn * 1000),
            )

    write_atomically(path, write)


def save_mp4(
    boards: Iterable[State],
    path: str | os.PathLike[str],
    cell_size: int = DEFAULT_CELL_SIZE,
    seconds_per_turn: float = _TURN_DURATION_S,
    win_probabilities: WinProbabilities = no_win_probabilities,
) -> None:
    """Write a game as an MP4 video (H.264) that pauses on the last board.

    Args:
        boards: Boards of the game, in order.
        path: Output file.
        cell_size: Size of a cell, in pixels.
        seconds_per_turn: Duration of a frame, in seconds.
        win_probabilities: Function that returns the win probabilities of a turn by snake id, or
            None.

    Raises:
        ModuleNotFoundError: If imageio-ffmpeg (the extra ``video``) is not installed.
        ValueError: If ``boards`` is empty.
    """
    import imageio_ffmpeg

    remaining = iter(boards)
    first = _first_board(remaining, "video")
    animation = Animation(cell_size, win_probabilities)
    animation.draw(first)
    width, height = animation.picture.size
    # H.264 requires an even width and height.
    size = width + width % 2, height + height % 2
    fps = 1 / seconds_per_turn

    def write(temporary: Path) -> None:
        writer = imageio_ffmpeg.write_frames(
            str(temporary), size, fps=fps, codec="libx264", macro_block_size=1,
            output_params=["-f", "mp4", "-movflags", "+faststart"],
        )  # fmt: skip
        writer.send(None)
        for board in (None, *_hold_last_frame(remaining, round(_FINAL_FRAME_DURATION_S * fps))):
            if board is not None:
                animation.draw(board)
            canvas = Image.new("RGB", size, drawing.PAPER_COLOR)
            canvas.paste(animation.picture)
            writer.send(canvas.tobytes())
        writer.close()

    write_atomically(path, write)


def _first_board(boards: Iterator[State], kind: str) -> State:
    first = next(boards, None)
    if first is None:
        raise ValueError(f"boards is empty; a {kind} needs at least one board")
    return first


def _write_gif(
    file: IO[bytes],
    first: State,
    remaining: Iterator[State],
    animation: Animation,
    duration_ms: int,
) -> None:
    animation.draw(first)
    palette = _Palette(animation.picture, first)
    frame = palette.convert(animation.picture)
    for block in GifImagePlugin.getheader(frame, info={"loop": 0})[0]:
        file.write(block)
    offset = (0, 0)
    for board in remaining:
        _write_frame(file, frame, offset, duration_ms)
        frame, offset = palette.convert_changes(animation.picture, animation.draw(board))
    _write_frame(file, frame, offset, max(duration_ms, round(_FINAL_FRAME_DURATION_S * 1000)))
    file.write(b";")


def _write_frame(
    file: IO[bytes], frame: Image.Image, offset: tuple[int, int], duration_ms: int
) -> None:
    options = {"duration": duration_ms, "transparency": _TRANSPARENT_INDEX, "disposal": 1}
    for block in GifImagePlugin.getdata(frame, offset, **options):
        file.write(block)


class _Palette:
    """Color palette of one animation, which converts images to palette colors."""

    def __init__(self, picture: Image.Image, board: State) -> None:
        seen = picture.quantize(_NUM_SAMPLED_COLORS).getpalette() or []
        colors = [tuple(seen[i : i + 3]) for i in range(0, len(seen), 3)]
        known = dict.fromkeys([*map(_parse_rgb, _potential_colors(board)), *colors])
        self._colors = [channel for color in list(known)[:_TRANSPARENT_INDEX] for channel in color]
        self._image = Image.new("P", (1, 1))
        self._image.putpalette(self._colors)

    def convert(self, picture: Image.Image) -> Image.Image:
        """Convert a whole image to palette colors."""
        return picture.quantize(palette=self._image, dither=Image.Dither.NONE)

    def convert_changes(
        self, picture: Image.Image, boxes: list[_PixelBox]
    ) -> tuple[Image.Image, tuple[int, int]]:
        """Return the changed region of an image in palette colors, and its offset.

        Unchanged pixels are transparent.
        """
        boxes = boxes or [_PixelBox(0, 0, 1, 1)]
        left, top = min(box.left for box in boxes), min(box.top for box in boxes)
        right, bottom = max(box.right for box in boxes), max(box.bottom for box in boxes)
        patch = self.convert(picture.crop((left, top, right, bottom)))
        mask = Image.new("L", patch.size, 255)
        for box in boxes:
            mask.paste(0, (box.left - left, box.top - top, box.right - left, box.bottom - top))
        patch.paste(_TRANSPARENT_INDEX, mask=mask)
        return patch, (left, top)


def _potential_colors(board: State) -> Iterator[str]:
    """Yield the colors that can appear after the first board.

    These are the colors of eliminations, hazards and eliminated snakes.
    """
    yield from (
        drawing.ELIMINATION_COLOR,
        drawing.FOOD_COLOR,
        customization.INK,
        drawing.PALE_COLOR,
        drawing.TRACK_COLOR,
    )
    yield from (
        customization.blend(color, drawing.CELL_COLOR, 0.5)
        for color in (drawing.ELIMINATION_COLOR, drawing.FOOD_COLOR)
    )
    yield from (
        customization.blend(drawing.HAZARD_COLOR, drawing.CELL_COLOR, alpha)
        for alpha in (0.35, 0.5, 0.65, 0.8)
    )
    for color in customization.assign_colors(board.snakes):
        for background in (drawing.CELL_COLOR, drawing.PAPER_COLOR):
            yield from (
                customization.blend(color, background, alpha) for alpha in (1.0, 0.6, 0.35, 0.25)
            )


def _parse_rgb(color: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(color[1:])
    return red, green, blue


def _hold_last_frame(boards: Iterator[State], num_frames: int) -> Iterator[State | None]:
    """Yield the boards, followed by None ``num_frames`` times."""
    yield from boards
    yield from [None] * num_frames


def _split_line(shape: Shape) -> Iterable[Shape]:
    """Split a line into segments, because a move changes only the ends of a snake."""
    if not isinstance(shape, Line):
        return (shape,)
    return [Line(ends, shape.fill, shape.width) for ends in pairwise(shape.points)]


def _bounding_box(shape: Shape) -> tuple[float, float, float, float]:
    """Return (left, top, right, bottom) of a shape, in cells.

    For text, the result is an upper bound.
    """
    if isinstance(shape, Disc):
        (x, y), radius = shape.center, shape.radius
        return x - radius, y - radius, x + radius, y + radius
    if isinstance(shape, Text):
        (x, y), width = shape.origin, shape.size * len(shape.text)
        left = x - (width if shape.anchor == "end" else 0.0)
        return left, y - shape.size, left + width, y + shape.size
    margin = shape.width / 2 if isinstance(shape, Line) else 0.0
    xs, ys = zip(*shape.points, strict=True)
    return min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin


def _translate(shape: Shape, left: float, top: float, right: float, bottom: float) -> Shape:
    """Return a copy of ``shape`` with coordinates relative to (``left``, ``top``).

    Coordinates are rounded, so that equal shapes compare equal at all positions.

    A box is clipped to the rectangle (``left``, ``top``, ``right``, ``bottom``).
    """

    def shift(point: tuple[float, float]) -> tuple[float, float]:
        return round(point[0] - left, 4), round(point[1] - top, 4)

    if isinstance(shape, Disc):
        return Disc(shift(shape.center), shape.fill, shape.radius)
    if isinstance(shape, Text):
        return Text(shift(shape.origin), shape.fill, shape.text, shape.size, shape.anchor)
    if isinstance(shape, Line):
        return Line(tuple(map(shift, shape.points)), shape.fill, shape.width)
    points = shape.points
    if len(points) == 2:
        points = tuple((min(max(x, left), right), min(max(y, top), bottom)) for x, y in points)
    return Polygon(tuple(map(shift, points)), shape.fill, shape.radius)
