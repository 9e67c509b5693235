"""Images of boards in SVG, PNG and GIF."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import animation, customization, drawing
from battlesnake_gym.draw.customization import Disc

CELL = 20
POSITION = """
turn=8 ruleset=wrapped
A . .~.2> >
. . v . . *
. B < . C <
A: name="<b>&amp;"
C: length=5 health=40
D: at=3,1/2,1 cause=head-collision by=b on=8
"""


def pixel(picture: Image.Image, cell: tuple[int, int], height: int) -> tuple[int, ...]:
    """Return the color at the center of a cell."""
    x = (drawing.MARGIN + cell[0] + 0.5) * CELL
    y = (drawing.MARGIN + height - cell[1] - 0.5) * CELL
    found = picture.getpixel((round(x), round(y)))
    assert isinstance(found, tuple)
    return found


def rgb(color: str) -> object:
    """Return a color that equals a pixel except for rounding."""
    return pytest.approx(tuple(bytes.fromhex(color[1:])), abs=3)


def test_svg_is_xml_and_escapes_names() -> None:
    root = ET.fromstring(drawing.svg(Board.from_text(POSITION)))
    tags = Counter(node.tag.split("}")[1] for node in root.iter())
    assert set(tags) == {"svg", "rect", "circle", "polygon", "polyline", "text"}
    words = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert "<b>&amp;" in words
    assert "turn 8" in words
    assert "2" in words  # the number of hazard layers
    assert any(re.search(r"head-collision.* turn 8", word or "") for word in words)


def test_cells_have_the_colors_of_their_content() -> None:
    board = Board.from_text(POSITION)
    picture = drawing.image(board, CELL)
    assert picture.mode == "RGB"
    assert pixel(picture, (4, 2), 3) == rgb(customization.PALETTE[0])
    assert pixel(picture, (2, 0), 3) == rgb(customization.PALETTE[1])
    assert pixel(picture, (5, 1), 3) == rgb(drawing.FOOD_COLOR)
    assert pixel(picture, (0, 1), 3) == rgb(drawing.CELL_COLOR)
    one, two = pixel(picture, (2, 2), 3), pixel(picture, (3, 2), 3)
    assert sum(two) < sum(one) < sum(pixel(picture, (0, 1), 3))
    assert pixel(picture, (3, 1), 3) == rgb(drawing.ELIMINATION_COLOR)
    assert pixel(picture, (2, 1), 3) != rgb(drawing.CELL_COLOR)  # the fading body


def test_elimination_pales_after_its_turn() -> None:
    board = Board.from_text(POSITION)
    board.turn = 9
    picture = drawing.image(board, CELL)
    for other in (drawing.ELIMINATION_COLOR, drawing.CELL_COLOR):
        assert pixel(picture, (3, 1), 3) != rgb(other)


def test_heads_face_the_direction_of_movement() -> None:
    """The white of the eyes is on the side that the head faces."""
    for text, ahead in [
        ("A <", (-1, 0)), ("> A", (1, 0)), ("A\n^", (0, -1)), ("v\nA", (0, 1)),
        ("ruleset=wrapped\nA > >\n. . .", (1, 0)),
    ]:  # fmt: skip
        board = Board.from_text(text)
        x, y = drawing._cell_center(board, board.snakes[0].head)
        shapes = drawing._head_shapes(board, board.snakes[0], "#000000")
        eyes = [
            part for part in shapes if isinstance(part, Disc) and part.fill == customization.WHITE
        ]
        middle = [sum(eye.center[axis] for eye in eyes) / 2 for axis in (0, 1)]
        assert (round((middle[0] - x) / 0.14), round((middle[1] - y) / 0.14)) == ahead


def test_stacked_tail_is_ringed() -> None:
    def rings(text: str) -> int:
        board = Board.from_text(text)
        shapes = drawing._body_shapes(board, board.snakes[0], "#000000")
        return len([s for s in shapes if "#" in s.fill and s.fill != "#000000"])

    assert rings("A < <") == 0
    assert rings("A < <\nA: length=4") == 1


def test_png_and_gif(tmp_path: Path) -> None:
    boards = [Board.from_text("A . . .\n. . . B")]
    for _ in range(3):
        boards.append(boards[-1].copy())
        boards[-1].step({"a": "right", "b": "left"})
    drawing.save_png(boards[0], tmp_path / "new" / "board.png", CELL)
    with Image.open(tmp_path / "new" / "board.png") as picture:
        assert picture.format == "PNG"
        assert picture.size == drawing.image(boards[0], CELL).size
    animation.save_gif(boards, tmp_path / "game.gif", seconds_per_turn=0.2)
    with Image.open(tmp_path / "game.gif") as animated:
        assert (animated.format, getattr(animated, "n_frames", 1)) == ("GIF", 4)
        assert animated.info["duration"] == 200
        animated.seek(3)
        assert animated.info["duration"] == 2000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["game.gif", "new"]


def test_gif_needs_a_board(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boards"):
        animation.save_gif([], tmp_path / "game.gif")
    assert not list(tmp_path.iterdir())
