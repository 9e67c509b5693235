"""Games as moving pictures: each turn only what changed is painted, and one turn is held at a time.

The picture is divided into parts, a cell of the board or a row of the list beside it each. A part
is painted again when other shapes lie in it than a turn ago; what was painted before is kept, since
most cells look like one that has been seen. `Animation.draw` gives the same pixels as `drawing.image`.
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

CELL = 20
"""Pixels of a cell's side."""

_TURN_DURATION_S = 0.15
_FINAL_FRAME_S = 2.0
"""How long a film rests on its last board."""

_MAX_CACHED_CELLS = 1024
"""Painted cells that are kept, so that memory does not grow with the game."""

_SEEN, _UNCHANGED = 180, 255
"""Colours of the palette that are taken from the first board; the one that changes nothing."""


WinProbabilities = Callable[[int], Mapping[str, float] | None]


def unknown(turn: int) -> None:
    """The chances of a game that nothing has looked at."""


class Box(NamedTuple):
    """A part of the picture, in pixels: left, top, right, bottom."""

    left: int
    top: int
    right: int
    bottom: int


class Animation:
    """A picture that follows a game; boards must be of one size, with the same snakes.

    ``cell`` is the side of a cell in pixels; ``chances`` are the snakes' on a turn, where known.
    """

    def __init__(self, cell: int = CELL, chances: WinProbabilities = unknown) -> None:
        self._cell = cell
        self._chances = chances
        self._kept: dict[object, Image.Image] = {}
        self._shown: list[list[Shape]] = []
        self._parts: list[Box] = []
        self._across = self._down = 0
        self._ground: tuple[Shape, ...] = ()
        self._bare: list[list[Shape]] = []
        self.picture = Image.new("RGB", (1, 1))

    def draw(self, board: State) -> list[Box]:
        """Bring ``picture`` to this board; returns what changed."""
        if not self._shown:
            self._begin(board)
            return [Box(0, 0, *self.picture.size)]
        changed = []
        for number, shapes in enumerate(self._sorted(board)):
            if shapes != self._shown[number]:
                self._shown[number] = shapes
                box = self._parts[number]
                self.picture.paste(self._paint(shapes, box), box)
                changed.append(box)
        return changed

    def _begin(self, board: State) -> None:
        """Paint all of the picture, and divide it into parts: the cells, then the list's rows."""
        self.picture = drawing.image(board, self._cell, self._chances(board.turn))
        self._across, self._down = board.width, board.height
        margin, rows = drawing.MARGIN, range(len(board.snakes))
        # The first and the last cells have the picture's edge too, where a head may reach out.
        xs = [0, *(self._pixel(margin + x) for x in range(1, board.width + 1))]
        ys = [0, *(self._pixel(margin + y) for y in range(1, board.height)), self.picture.height]
        ends = [0, *(self._pixel(margin + 0.8 + drawing.ROW * row) for row in rows)]
        ends.append(self.picture.height)
        self._parts = [Box(x, y, x_end, y_end)
                       for y, y_end in pairwise(ys) for x, x_end in pairwise(xs)]  # fmt: skip
        self._parts += [Box(xs[-1], y, self.picture.width, end) for y, end in pairwise(ends)]
        self._shown = self._sorted(board)

    def _pixel(self, place: float) -> int:
        return round(place * self._cell)

    def _sorted(self, board: State) -> list[list[Shape]]:
        """For each part the shapes that reach into it, from the back to the front."""
        ground = drawing.background_shapes(board)
        if ground is not self._ground:
            self._ground = ground
            self._bare = [[] for _ in range(len(self._parts))]
            self._sort(ground, self._bare)
        found = [part[:] for part in self._bare]
        self._sort(drawing.foreground_shapes(board, self._chances(board.turn)), found)
        return found

    def _sort(self, shapes: Iterable[Shape], found: list[list[Shape]]) -> None:
        """Add each of ``shapes`` to the parts that it reaches into."""
        margin, across, down = drawing.MARGIN, self._across, self._down
        rows = range(across * down, len(found))
        slack = 1 / (self._cell * drawing.OVERSAMPLE)  # Pillow paints the last pixel too
        for shape in shapes:
            for piece in _pieces(shape):
                left, top, right, bottom = _bounding_box(piece)
                left, top, right, bottom = left - slack, top - slack, right + slack, bottom + slack
                if right >= margin + across:
                    low, high = top * self._cell - 1, bottom * self._cell + 1
                    for row in rows:
                        if self._parts[row].top < high and low < self._parts[row].bottom:
                            found[row].append(piece)
                if left < margin + across:
                    columns = range(max(0, int(left - margin)),
                                    min(across, int(right - margin) + 1))  # fmt: skip
                    for y in range(max(0, int(top - margin)), min(down, int(bottom - margin) + 1)):
                        for x in columns:
                            found[y * across + x].append(piece)

    def _paint(self, shapes: list[Shape], box: Box) -> Image.Image:
        """A part of the picture; a cell from what was painted before, where that looked the same.

        Around it is painted as much again as a cell, so that no coordinate is negative, where
        Pillow rounds the other way.
        """
        scale = self._cell * drawing.OVERSAMPLE
        left, top, right, bottom = (side * drawing.OVERSAMPLE for side in box)
        seen = (left - scale, top - scale, right + scale, bottom + scale)
        moved = tuple(_moved(shape, *(side / scale for side in seen)) for shape in shapes)
        size = right - left, bottom - top
        known = self._kept.get((size, moved))
        if known is not None:
            return known
        canvas = Image.new("RGB", (size[0] + 2 * scale, size[1] + 2 * scale), drawing.PAPER)
        draw = ImageDraw.Draw(canvas)
        for shape in moved:
            drawing.paint(draw, shape, scale)
        inner = canvas.crop((scale, scale, scale + size[0], scale + size[1]))
        painted = inner.reduce(drawing.OVERSAMPLE)
        if box.right <= self._parts[self._across - 1].right:  # the list is hardly ever as before
            if len(self._kept) >= _MAX_CACHED_CELLS:
                self._kept.clear()
            self._kept[size, moved] = painted
        return painted


def save_gif(
    boards: Iterable[State],
    path: str | os.PathLike[str],
    cell: int = CELL,
    seconds_per_turn: float = _TURN_DURATION_S,
    chances: WinProbabilities = unknown,
) -> None:
    """Write a game as an animated GIF that plays for ever and rests on the last board.

    One board is held at a time, however long the game is. Raises ``ValueError`` where there is no
    board to draw.
    """
    following = iter(boards)
    first = _first(following, "GIF")

    def write(part: Path) -> None:
        with part.open("wb") as file:
            _write_gif(
                file, first, following, Animation(cell, chances), round(seconds_per_turn * 1000)
            )

    write_atomically(path, write)


def save_mp4(
    boards: Iterable[State],
    path: str | os.PathLike[str],
    cell: int = CELL,
    seconds_per_turn: float = _TURN_DURATION_S,
    chances: WinProbabilities = unknown,
) -> None:
    """Write a game as an MP4 video (H.264) that rests on the last board.

    Raises ``ModuleNotFoundError`` without imageio-ffmpeg (the extra ``video``), and ``ValueError``
    where there is no board to draw.
    """
    import imageio_ffmpeg

    following = iter(boards)
    first = _first(following, "video")
    film = Animation(cell, chances)
    film.draw(first)
    width, height = film.picture.size
    size = width + width % 2, height + height % 2  # what H.264 asks for
    per_second = 1 / seconds_per_turn

    def write(part: Path) -> None:
        writer = imageio_ffmpeg.write_frames(
            str(part), size, fps=per_second, codec="libx264", macro_block_size=1,
            output_params=["-f", "mp4", "-movflags", "+faststart"],
        )  # fmt: skip
        writer.send(None)
        for board in (None, *_hold_last_frame(following, round(_FINAL_FRAME_S * per_second))):
            if board is not None:
                film.draw(board)
            canvas = Image.new("RGB", size, drawing.PAPER)
            canvas.paste(film.picture)
            writer.send(canvas.tobytes())
        writer.close()

    write_atomically(path, write)


def _first(boards: Iterator[State], kind: str) -> State:
    first = next(boards, None)
    if first is None:
        raise ValueError(f"boards is empty; a {kind} needs at least one board")
    return first


# --- what a GIF is made of ----------------------------------------------------------------------


def _write_gif(
    file: IO[bytes], first: State, following: Iterator[State], film: Animation, tick: int
) -> None:
    film.draw(first)
    palette = _Palette(film.picture, first)
    frame = palette.whole(film.picture)
    for block in GifImagePlugin.getheader(frame, info={"loop": 0})[0]:
        file.write(block)
    place = (0, 0)
    for board in following:
        _write_frame(file, frame, place, tick)
        frame, place = palette.patch(film.picture, film.draw(board))
    _write_frame(file, frame, place, max(tick, round(_FINAL_FRAME_S * 1000)))
    file.write(b";")


def _write_frame(file: IO[bytes], frame: Image.Image, place: tuple[int, int], tick: int) -> None:
    options = {"duration": tick, "transparency": _UNCHANGED, "disposal": 1}
    for block in GifImagePlugin.getdata(frame, place, **options):
        file.write(block)


class _Palette:
    """The colours of one film, and which of them is the nearest to a pixel."""

    def __init__(self, picture: Image.Image, board: State) -> None:
        seen = picture.quantize(_SEEN).getpalette() or []
        colours = [tuple(seen[i : i + 3]) for i in range(0, len(seen), 3)]
        known = dict.fromkeys([*map(_rgb, _later(board)), *colours])
        self._colours = [channel for colour in list(known)[:_UNCHANGED] for channel in colour]
        self._image = Image.new("P", (1, 1))
        self._image.putpalette(self._colours)

    def whole(self, picture: Image.Image) -> Image.Image:
        """All of ``picture`` in these colours."""
        return picture.quantize(palette=self._image, dither=Image.Dither.NONE)

    def patch(self, picture: Image.Image, boxes: list[Box]) -> tuple[Image.Image, tuple[int, int]]:
        """What changed, in these colours, and where it belongs; the rest changes nothing."""
        boxes = boxes or [Box(0, 0, 1, 1)]
        left, top = min(box.left for box in boxes), min(box.top for box in boxes)
        right, bottom = max(box.right for box in boxes), max(box.bottom for box in boxes)
        made = self.whole(picture.crop((left, top, right, bottom)))
        kept = Image.new("L", made.size, 255)
        for box in boxes:
            kept.paste(0, (box.left - left, box.top - top, box.right - left, box.bottom - top))
        made.paste(_UNCHANGED, mask=kept)
        return made, (left, top)


def _later(board: State) -> Iterator[str]:
    """Colours that the first board need not show: of deaths, of hazards, of who is out."""
    yield from (drawing.DEATH, drawing.FOOD, customization.INK, drawing.PALE, drawing.TRACK)
    yield from (
        customization.mix(colour, drawing.CELL, 0.5) for colour in (drawing.DEATH, drawing.FOOD)
    )
    yield from (
        customization.mix(drawing.HAZARD, drawing.CELL, share) for share in (0.35, 0.5, 0.65, 0.8)
    )
    for colour in customization.colors(board.snakes):
        for ground in (drawing.CELL, drawing.PAPER):
            yield from (
                customization.mix(colour, ground, share) for share in (1.0, 0.6, 0.35, 0.25)
            )


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue


def _hold_last_frame(boards: Iterator[State], turns: int) -> Iterator[State | None]:
    """The boards, and then ``turns`` times nothing new."""
    yield from boards
    yield from [None] * turns


# --- shapes and where they reach ----------------------------------------------------------------


def _pieces(shape: Shape) -> Iterable[Shape]:
    """A line as its segments, so that a snake's move changes only its ends."""
    if not isinstance(shape, Line):
        return (shape,)
    return [Line(ends, shape.fill, shape.width) for ends in pairwise(shape.points)]


def _bounding_box(shape: Shape) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a shape, in cells; of a text rather too much."""
    if isinstance(shape, Disc):
        (x, y), radius = shape.centre, shape.radius
        return x - radius, y - radius, x + radius, y + radius
    if isinstance(shape, Text):
        (x, y), width = shape.place, shape.size * len(shape.text)
        left = x - (width if shape.anchor == "end" else 0.0)
        return left, y - shape.size, left + width, y + shape.size
    around = shape.width / 2 if isinstance(shape, Line) else 0.0
    xs, ys = zip(*shape.points, strict=True)
    return min(xs) - around, min(ys) - around, max(xs) + around, max(ys) + around


def _moved(shape: Shape, left: float, top: float, right: float, bottom: float) -> Shape:
    """``shape`` as seen from (``left``, ``top``), rounded so that equal places are equal.

    A box that reaches beyond what is seen ends there.
    """

    def put(point: tuple[float, float]) -> tuple[float, float]:
        return round(point[0] - left, 4), round(point[1] - top, 4)

    if isinstance(shape, Disc):
        return Disc(put(shape.centre), shape.fill, shape.radius)
    if isinstance(shape, Text):
        return Text(put(shape.place), shape.fill, shape.text, shape.size, shape.anchor)
    if isinstance(shape, Line):
        return Line(tuple(map(put, shape.points)), shape.fill, shape.width)
    points = shape.points
    if len(points) == 2:
        points = tuple((min(max(x, left), right), min(max(y, top), bottom)) for x, y in points)
    return Polygon(tuple(map(put, points)), shape.fill, shape.radius)
