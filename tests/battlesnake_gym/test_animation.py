"""Animations: frames show the drawn boards, and memory use does not grow."""

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import animation, customization, drawing
from battlesnake_gym.rules import Game, Settings


class TrackedBoard(Board):
    """A board that supports weak references, to detect whether it is still in memory."""

    __slots__ = ("__weakref__",)


def game(turns: int, map_name: str = "standard", size: int = 11) -> Iterator[TrackedBoard]:
    """Play a game of three snakes, with eliminations and hazards."""
    settings = Settings(shrink_every_n_turns=5)
    ruleset = "royale" if map_name == "royale" else "wrapped"
    board = TrackedBoard.new(size, size, 3, game=Game(ruleset, map_name, settings, seed=5))
    board.snakes[0].customizations = {"head": "sand-worm", "tail": "curled"}
    players = [snakes.make(name, 1) for name in ("cautious", "hungry", "random")]
    yield board.copy()
    for _ in range(turns):
        moves = {}
        for snake, player in zip(board.snakes, players, strict=True):
            if snake.alive:
                board.you_id = snake.id
                moves[snake.id] = player(board.copy()).move
        board.step(moves)
        yield board.copy()


def test_bar_is_divided_by_win_probability() -> None:
    board = next(game(0))
    probabilities = [0.5, 0.4, 0.1]
    win_probabilities = dict(zip((snake.id for snake in board.snakes), probabilities, strict=True))
    picture = drawing.image(board, 20, win_probabilities)
    top = round(20 * (drawing.MARGIN + 0.75 + drawing.ROW_HEIGHT * len(board.snakes))) + 2
    left = round(20 * (2 * drawing.MARGIN + board.width))
    row = [picture.getpixel((x, top)) for x in range(left, picture.width)]
    for color, probability in zip(
        customization.assign_colors(board.snakes), probabilities, strict=True
    ):
        pixels = row.count(tuple(bytes.fromhex(color[1:])))
        assert pixels == pytest.approx(20 * probability * (drawing.PANEL_WIDTH - 0.8), abs=2)


def test_gif_has_the_colors_of_the_boards(tmp_path: Path) -> None:
    boards = list(game(12, "royale"))
    animation.save_gif(boards, tmp_path / "game.gif")
    with Image.open(tmp_path / "game.gif") as animated:
        for number, board in enumerate(boards):
            animated.seek(number)
            unlike = ImageChops.difference(animated.convert("RGB"), drawing.image(board, 20))
            worst = max(int(largest) for _, largest in unlike.getextrema())  # type: ignore[misc]
            assert worst < 64  # of 255, at smoothed edges


def test_gif_holds_few_boards_in_memory(tmp_path: Path) -> None:
    seen: list[weakref.ref[TrackedBoard]] = []
    largest = 0

    def tracked() -> Iterator[Board]:
        nonlocal largest
        for board in game(30):
            seen.append(weakref.ref(board))
            largest = max(largest, sum(reference() is not None for reference in seen))
            yield board

    animation.save_gif(tracked(), tmp_path / "game.gif")
    assert len(seen) == 31
    assert largest <= 4


def test_mp4_is_a_video(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    animation.save_mp4(game(10), tmp_path / "game.mp4", seconds_per_turn=0.1)
    frames = ffmpeg.read_frames(str(tmp_path / "game.mp4"))
    metadata = next(frames)
    frames.close()
    assert metadata["codec"] == "h264"
    assert metadata["size"][0] % 2 == metadata["size"][1] % 2 == 0
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "game.mp4"))
    assert (count, round(seconds, 1)) == (11 + 20, 3.1)
