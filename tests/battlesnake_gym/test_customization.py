"""Customization of snakes: distinct colors, and heads and tails by name."""

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import customization, drawing
from battlesnake_gym.draw.customization import Disc, Line, Polygon
from battlesnake_gym.rules import Snake

STANDARD_HEADS = [
    "default", "beluga", "bendr", "dead", "evil", "fang", "pixel", "safe", "sand-worm", "shades",
    "silly", "smile", "tongue",
]  # fmt: skip
STANDARD_TAILS = [
    "default", "block-bum", "bolt", "curled", "fat-rattle", "freckled", "hook", "pixel",
    "round-bum", "sharp", "skinny", "small-rattle",
]  # fmt: skip


def snakes_with_colors(*colors: str) -> list[Snake]:
    """Return snakes with these colors; "" means no color."""
    return [
        Snake(str(i), [(0, 0)], customizations={"color": color} if color else {})
        for i, color in enumerate(colors)
    ]


def test_snakes_keep_their_color_or_get_one() -> None:
    assert customization.assign_colors(snakes_with_colors("#F80", "", "#3366cc")) == [
        "#ff8800",
        "#e4572e",
        "#3366cc",
    ]
    assert customization.blend("#f80", "#000", 0.5) == "#804400"
    for bad in ("red", "#12", "#1234567", '#fff"/>', "#024413d5", "#12345\n", ""):
        assert customization.assign_colors(snakes_with_colors(bad)) == [customization.PALETTE[0]]


def test_palette_colors_are_distinct() -> None:
    for one, other in itertools.combinations(customization.PALETTE, 2):
        assert customization._color_distance(one, other) >= customization.MIN_COLOR_DISTANCE


def test_similar_colors_are_assigned_once() -> None:
    assert customization.assign_colors(snakes_with_colors(*["#888888"] * 4)) == [
        "#888888",
        *customization.PALETTE[1:4],
    ]
    assert (
        customization.assign_colors(snakes_with_colors("#888888", "#8a8a87"))[1]
        == customization.PALETTE[1]
    )
    similar = snakes_with_colors("#000000", "#000001", "#ffffff", "#fffffe")
    assert customization.assign_colors(similar)[::2] == ["#000000", "#ffffff"]
    # A snake with a palette color takes it away from snakes without a color.
    first, second, third = customization.assign_colors(
        snakes_with_colors("", customization.PALETTE[0], customization.PALETTE[1])
    )
    assert (second, third) == customization.PALETTE[:2]
    assert first == customization.PALETTE[2]


COLOR = st.sampled_from(["", *customization.PALETTE, "#888888", "#000", "#fff"]) | st.from_regex(
    r"\A#[0-9a-f]{6}\Z"
)


@given(st.lists(COLOR, min_size=1, max_size=16))
@settings(deadline=None)
def test_snakes_of_a_game_have_distinct_colors(colors: list[str]) -> None:
    assigned = customization.assign_colors(snakes_with_colors(*colors))
    assert len(assigned) == len(colors)
    for one, other in itertools.combinations(assigned, 2):
        assert customization._color_distance(one, other) >= customization.MIN_COLOR_DISTANCE


def test_64_snakes_have_different_colors() -> None:
    assert len(set(customization.assign_colors(snakes_with_colors(*["#888888"] * 64)))) == 64


def test_standard_heads_and_tails_exist() -> None:
    assert list(customization.HEADS) == STANDARD_HEADS
    assert list(customization.TAILS) == STANDARD_TAILS
    assert customization.head_parts("no-such-head") == customization.HEADS["default"]
    assert customization.tail_parts("no-such-tail") == customization.TAILS["default"] == ()
    parts = [
        part
        for shape in (*customization.HEADS.values(), *customization.TAILS.values())
        for part in shape
    ]
    assert {part.fill for part in parts} == set(customization.fill_colors("#123456"))


def painted(name: str, kind: str, text: str) -> str:
    board = Board.from_text(text)
    board.snakes[0].customizations[kind] = name
    return drawing.svg(board)


@pytest.mark.parametrize("text", ["A <", "> A", "A\n^", "v\nA", "A < <\nA: length=5"])
def test_heads_and_tails_are_drawn_differently(text: str) -> None:
    for kind, names in (("head", customization.HEADS), ("tail", customization.TAILS)):
        pictures = {painted(name, kind, text) for name in names}
        assert len(pictures) == len(names)
        for picture in pictures:
            ET.fromstring(picture)


@pytest.mark.parametrize("name", [*customization.HEADS, *customization.TAILS])
def test_heads_and_tails_stay_in_their_cell(name: str) -> None:
    points: tuple[tuple[float, float], ...]
    for part in (*customization.HEADS.get(name, ()), *customization.TAILS.get(name, ())):
        if isinstance(part, Disc):
            points, radius = (part.center,), part.radius
        else:
            points, radius = part.points, part.width / 2 if isinstance(part, Line) else 0.0
        for x, y in points:
            assert max(abs(x), abs(y)) + radius <= 0.75, part
        assert not isinstance(part, Polygon) or len(part.points) > 2, "boxes cannot be rotated"
