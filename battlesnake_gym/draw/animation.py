"""Animations of games as GIF and MP4 files, which are written turn by turn."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from PIL import GifImagePlugin, Image, ImageChops, ImageColor

from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.draw import customization, drawing
from battlesnake_gym.rules.state import State

DEFAULT_CELL_SIZE = 20
"""Default size of a cell, in pixels."""

_TURN_DURATION_S = 0.15
_FINAL_FRAME_DURATION_S = 2.0
"""Duration of the last frame of an animation, in seconds."""

_NUM_SAMPLED_COLORS, _TRANSPARENT_INDEX = 180, 255
"""Number of sampled palette colors, and the index of the transparent color."""

WinProbabilities = Callable[[int], Mapping[str, float] | None]


def save_gif(
    boards: Iterable[State],
    path: str | os.PathLike[str],
    cell_size: int = DEFAULT_CELL_SIZE,
    seconds_per_turn: float = _TURN_DURATION_S,
    win_probabilities: WinProbabilities = lambda turn: None,
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

    def draw(board: State) -> Image.Image:
        return drawing.image(board, cell_size, win_probabilities(board.turn))

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            _write_gif(file, first, remaining, draw, round(seconds_per_turn * 1000))

    write_atomically(path, write)


def save_mp4(
    boards: Iterable[State],
    path: str | os.PathLike[str],
    cell_size: int = DEFAULT_CELL_SIZE,
    seconds_per_turn: float = _TURN_DURATION_S,
    win_probabilities: WinProbabilities = lambda turn: None,
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
    width, height = drawing.image(first, cell_size).size
    # H.264 requires an even width and height.
    size = width + width % 2, height + height % 2
    fps = 1 / seconds_per_turn

    def write(temporary: Path) -> None:
        writer = imageio_ffmpeg.write_frames(
            str(temporary), size, fps=fps, codec="libx264", macro_block_size=1,
            output_params=["-f", "mp4", "-movflags", "+faststart"],
        )  # fmt: skip
        writer.send(None)
        for board in itertools.chain([first], remaining):
            canvas = Image.new("RGB", size, drawing.PAPER_COLOR)
            canvas.paste(drawing.image(board, cell_size, win_probabilities(board.turn)))
            writer.send(canvas.tobytes())
        for _ in range(round(_FINAL_FRAME_DURATION_S * fps)):
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
    draw: Callable[[State], Image.Image],
    duration_ms: int,
) -> None:
    picture = draw(first)
    palette = _Palette(picture, first)
    frame = palette.convert(picture)
    for block in GifImagePlugin.getheader(frame, info={"loop": 0})[0]:
        file.write(block)
    offset = (0, 0)
    for board in remaining:
        _write_frame(file, frame, offset, duration_ms)
        before, picture = picture, draw(board)
        frame, offset = palette.convert_changes(before, picture)
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
        known = dict.fromkeys([*map(ImageColor.getrgb, _potential_colors(board)), *colors])
        self._colors = [channel for color in list(known)[:_TRANSPARENT_INDEX] for channel in color]
        self._image = Image.new("P", (1, 1))
        self._image.putpalette(self._colors)

    def convert(self, picture: Image.Image) -> Image.Image:
        """Convert a whole image to palette colors."""
        return picture.quantize(palette=self._image, dither=Image.Dither.NONE)

    def convert_changes(
        self, before: Image.Image, after: Image.Image
    ) -> tuple[Image.Image, tuple[int, int]]:
        """Return the changed region of an image in palette colors, and its offset.

        Unchanged pixels are transparent.
        """
        red, green, blue = ImageChops.difference(before, after).split()
        changed = ImageChops.lighter(ImageChops.lighter(red, green), blue)
        box = changed.getbbox() or (0, 0, 1, 1)
        patch = self.convert(after.crop(box))
        unchanged = changed.crop(box).point([255] + [0] * 255)
        patch.paste(_TRANSPARENT_INDEX, mask=unchanged)
        return patch, box[:2]


def _potential_colors(board: State) -> Iterator[str]:
    """Yield the colors that can appear after the first board.

    These are the colors of eliminations, hazards and eliminated snakes.
    """
    drawn = (drawing.ELIMINATION_COLOR, drawing.FOOD_COLOR)
    yield from (*drawn, customization.INK, drawing.PALE_COLOR, drawing.TRACK_COLOR)
    snakes = customization.assign_colors(board.snakes)
    for colors, background, alphas in (
        (drawn, drawing.CELL_COLOR, (0.5,)),
        ((drawing.HAZARD_COLOR,), drawing.CELL_COLOR, (0.35, 0.5, 0.65, 0.8)),
        (snakes, drawing.CELL_COLOR, (1.0, 0.6, 0.35, 0.25)),
        (snakes, drawing.PAPER_COLOR, (1.0, 0.6, 0.35, 0.25)),
    ):
        for color, alpha in itertools.product(colors, alphas):
            yield customization.blend(color, background, alpha)
