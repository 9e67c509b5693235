"""Films: every frame as if it were painted anew, and one board held at a time."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import animation, customization, drawing
from battlesnake_gym.rules import Game, Settings


class Watched(Board):
    """A board that tells whether anybody still holds it."""

    __slots__ = ("__weakref__",)


def game(turns: int, map_name: str = "standard", size: int = 11) -> Iterator[Watched]:
    """A game of three snakes, in which some die and hazards come."""
    settings = Settings(shrink_every_n_turns=5)
    ruleset = "royale" if map_name == "royale" else "wrapped"
    board = Watched.new(size, size, 3, game=Game(ruleset, map_name, settings, seed=5))
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


@pytest.mark.parametrize(("map_name", "cell"), [("standard", 20), ("royale", 20), ("royale", 13)])
def test_a_frame_is_what_the_board_looks_like(map_name: str, cell: int) -> None:
    film = animation.Animation(cell)
    boards = list(game(25, map_name))
    assert any(not snake.alive for snake in boards[-1].snakes)
    for board in boards:
        changed = film.draw(board)
        assert film.picture.tobytes() == drawing.image(board, cell).tobytes(), board.turn
    assert 0 < len(changed) < board.width * board.height / 2


def test_the_bar_gives_each_snake_its_share_in_its_colour() -> None:
    first, board = game(1)
    shares = [0.5, 0.4, 0.1]
    chances = dict(zip((snake.id for snake in board.snakes), shares, strict=True))
    film = animation.Animation(20, lambda turn: chances)
    film.draw(first)
    for seen in (first, board):
        film.draw(seen)
        top = round(20 * (drawing.MARGIN + 0.75 + drawing.ROW * len(board.snakes))) + 2
        left = round(20 * (2 * drawing.MARGIN + board.width))
        row = [film.picture.getpixel((x, top)) for x in range(left, film.picture.width)]
        for colour, share in zip(customization.colors(board.snakes), shares, strict=True):
            pixels = row.count(tuple(bytes.fromhex(colour[1:])))
            assert pixels == pytest.approx(20 * share * (drawing.PANEL - 0.8), abs=2)


def test_a_gif_shows_it_in_its_colours(tmp_path: Path) -> None:
    boards = list(game(12, "royale"))
    animation.save_gif(boards, tmp_path / "game.gif")
    with Image.open(tmp_path / "game.gif") as film:
        for number, board in enumerate(boards):
            film.seek(number)
            unlike = ImageChops.difference(film.convert("RGB"), drawing.image(board, 20))
            worst = max(int(most) for _, most in unlike.getextrema())  # type: ignore[misc]
            assert worst < 64  # of 255, at smoothed edges


def test_one_board_is_held_at_a_time(tmp_path: Path) -> None:
    seen: list[weakref.ref[Watched]] = []
    most = 0

    def watched() -> Iterator[Board]:
        nonlocal most
        for board in game(30):
            seen.append(weakref.ref(board))
            most = max(most, sum(one() is not None for one in seen))
            yield board

    animation.save_gif(watched(), tmp_path / "game.gif")
    assert len(seen) == 31
    assert most <= 4


def test_an_mp4_is_a_video(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    animation.save_mp4(game(10), tmp_path / "game.mp4", seconds_per_turn=0.1)
    frames = ffmpeg.read_frames(str(tmp_path / "game.mp4"))
    facts = next(frames)
    frames.close()
    assert facts["codec"] == "h264"
    assert facts["size"][0] % 2 == facts["size"][1] % 2 == 0
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "game.mp4"))
    assert (count, round(seconds, 1)) == (11 + 20, 3.1)
