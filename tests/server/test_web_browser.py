"""Tests of the arena's pages in a browser."""

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import customization
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis import scenarios
from tests.processes import fetch_json, until
from tests.server import web_site
from tests.server.browser import Browser
from tests.server.web_site import Pages

PATHS = {
    "/": "document.readyState === 'complete'",
    "/live": "document.readyState === 'complete'",
    "/games": "document.readyState === 'complete'",
    "/snake/hungry": "document.readyState === 'complete'",
    "/play": "document.querySelector('#preview .snake')",
    "/lab": "document.querySelector('#board .snake')",
    "/replays/": "document.querySelector('.thumbnail .snake')",
    "/replays/replay/FILE": "document.querySelector('#board [data-snake]')",
    "/game/GAME": "document.querySelector('#board [data-snake]')",
}
"""Pages, and a JavaScript condition that is true when the page is complete."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return web_site.make(tmp_path_factory.mktemp("arena"))


@pytest.fixture(scope="module")
def site(pages: Pages) -> Iterator[str]:
    with web_site.serving(pages.app) as address:
        yield address


@pytest.fixture(scope="module")
def file(pages: Pages) -> str:
    """Return the file name of a recorded game."""
    return min(path.name for path in (pages.folder / "replays").iterdir())


@pytest.fixture
def game(pages: Pages) -> str:
    """Return the id of a live game between two searches."""
    board = Board.new(7, 7, 2, game=Game(seed=5, id="searched"))
    thinkers = {snake.id: snakes.make("minimax", 1) for snake in board.snakes}
    replay = Replay.from_play(board, thinkers, max_turns=3)
    for said in (replay.first, *replay.turns, None):
        pages.broadcast.publish_event("searched", said)
    return "searched"


def point(browser: Browser, x: int, y: int) -> tuple[float, float]:
    """Return the window coordinates of a cell's center."""
    where = browser.run(
        "(board => { board.scrollIntoView({block: 'center'});"
        " const height = Math.round(board.viewBox.baseVal.height - 0.36);"
        " const p = new DOMPoint(arguments[0] + 0.5, height - arguments[1] - 0.5)"
        ".matrixTransform(board.getScreenCTM()); return [p.x, p.y]; })"
        "(document.getElementById('board'))",
        *(x, y),
    )
    return float(where[0]), float(where[1])


def drag(browser: Browser, *cells: tuple[int, int], shift: bool = False) -> None:
    """Press the mouse on the first cell, move over the others, and release it."""
    points = [point(browser, *cell) for cell in cells]
    kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 1), "mouseReleased"]
    for kind, (x, y) in zip(kinds, [*points, points[-1]], strict=True):
        event = {"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1,
                 "modifiers": 8 if shift else 0}  # fmt: skip
        browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)


def click(browser: Browser, selector: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", selector)


def head(browser: Browser, snake: int) -> list[float]:
    """Return the SVG coordinates of a snake's head."""
    found: list[float] = browser.run(
        "(all => [all.at(-1).cx.baseVal.value, all.at(-1).cy.baseVal.value])"
        f"([...document.querySelectorAll('#board [data-snake=\"{snake}\"] circle:not([class])')])"
    )
    return found


def test_leaderboard_and_tournament_selection(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/")
    assert quiet.run("document.querySelectorAll('.standings tbody tr').length") == 3
    quiet.enter(".choice select", "")
    quiet.wait("location.search === '?tournament='")
    click(quiet, ".standings tbody th a")
    quiet.wait("location.pathname.startsWith('/snake/')")
    assert quiet.run("document.querySelectorAll('.sheets section').length") == 4
    click(quiet, ".heading .pale a")
    quiet.wait("location.pathname === '/games'")
    quiet.wait("document.querySelectorAll('.thumbnail .snake').length > 0")
    assert quiet.run("document.querySelectorAll('a.game').length") == 4
    click(quiet, "a.game")
    quiet.wait("document.querySelectorAll('#board .snake').length === 2")


def test_live_games_come_and_go(quiet: Browser, site: str, pages: Pages) -> None:
    quiet.open(f"{site}/live", "!document.getElementById('nothing').hidden")
    web_site.announce(pages.broadcast, "shown", 1)
    quiet.wait("document.querySelectorAll('.game').length === 1")
    assert quiet.text(".names").split() == ["Ann", "Bob"]
    assert quiet.run("document.getElementById('last').hidden")
    pages.broadcast.publish_event("shown", None)
    quiet.wait("document.querySelectorAll('.game').length === 0")


def test_featured_game_plays_if_no_game_is_live(
    quiet: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(web_site.SETUP, game_spec=GameSpec(2, 7, 7, max_turns=4))
    monkeypatch.setattr(web_site, "SETUP", short)  # its analysis takes a while
    pages = web_site.make(tmp_path)
    with web_site.serving(pages.app) as address:
        web_site.announce(pages.broadcast, "soon over", 1)
        quiet.open(f"{address}/live", "document.querySelectorAll('.game').length === 1")
        assert quiet.run("document.getElementById('last')") is None
        pages.broadcast.publish_event("soon over", None)
        quiet.wait("document.querySelectorAll('#last #board .snake').length > 0")
        quiet.wait("Number(document.querySelector('#turn b').innerText) > 1")
        quiet.wait("!document.getElementById('graph').hidden")
        state = "document.getElementById('analysis-state').innerText"
        quiet.wait(f"!/^(Analyzing|Waiting)/.test({state})", 400)


def test_live_game_is_streamed_to_its_end(quiet: Browser, site: str, pages: Pages) -> None:
    web_site.announce(pages.broadcast, "followed", 1)
    quiet.open(f"{site}/game/followed", "document.querySelectorAll('#board .snake').length === 2")
    assert quiet.text("#turn") == "1 / 1", "late visitors start at the current turn"
    assert quiet.text("#outcome") == "live"
    turn = Turn({"a": "down", "b": "up"})
    pages.broadcast.publish_event("followed", turn)
    quiet.wait("document.getElementById('turn').innerText === '2 / 2'")
    for _ in range(2):
        pages.broadcast.publish_event("followed", turn)
    pages.broadcast.publish_event("followed", None)
    quiet.wait("document.getElementById('outcome').innerText === 'Draw'")
    assert quiet.text("#turn") == "4 / 4"
    assert quiet.run("document.body.classList.contains('playing')") is False
    quiet.press("ArrowLeft")
    assert quiet.text("#turn") == "3 / 4"
    quiet.press("1")
    assert quiet.text("#decision p")


def test_a_game_that_the_server_lost_is_over(quiet: Browser, site: str, pages: Pages) -> None:
    web_site.announce(pages.broadcast, "gone", 1)
    quiet.open(f"{site}/game/gone", "document.querySelectorAll('#board .snake').length === 2")
    timeline = pages.broadcast._timelines.pop("gone")
    timeline.release()
    quiet.wait("document.getElementById('outcome').innerText.endsWith('in this arena')")
    quiet.complaints()  # the browser notes the refusal itself
    assert not quiet.run("document.body.classList.contains('live')")


@pytest.mark.parametrize(
    ("ruleset", "cells", "left"), [("standard", 1, 4.06), ("wrapped", 4, 0.06)]
)
def test_expected_line_ends_at_a_wall(
    quiet: Browser, site: str, pages: Pages, ruleset: str, cells: int, left: float
) -> None:
    board = Board.from_text(f"ruleset={ruleset}\n. . . A\n. . B ^\n. . ^ ^\nA: health=9")
    decision = Decision("right", scores={"right": 1.0}, line={"a": ("right", "right", "down")})
    turn = Turn({"a": "right", "b": "up"}, decisions={"a": decision})
    for event in (board, turn, None):
        pages.broadcast.publish_event(f"line {ruleset}", event)
    quiet.open(f"{site}/game/line {ruleset}#snake=1", "document.querySelector('#board .line')")
    path = quiet.run("document.querySelector('#board .line').getAttribute('d')")
    assert len(re.findall("[ML]", path)) == cells
    score = quiet.run("document.querySelector('#board .value rect').x.baseVal.value")
    assert score == pytest.approx(left)


def test_expected_line_is_drawn(quiet: Browser, site: str, game: str) -> None:
    quiet.open(f"{site}/game/{game}", "document.querySelectorAll('#board .snake').length === 2")
    assert quiet.run("document.querySelectorAll('#board .line').length") == 0
    quiet.press("1")
    assert quiet.run("document.querySelectorAll('#board .line:not(.halo)').length") == 2
    data = fetch_json(f"{site}/game/{game}/data")
    next_ = data["frames"][0]["snakes"][0]["next"]
    arrows = {"up": "↑", "down": "↓", "left": "←", "right": "→"}
    panel = quiet.text(".expected-line")
    for moves in next_["line"].values():
        assert "".join(arrows[move] for move in moves) in panel
    assert quiet.text("#board .value.chosen")
    others = quiet.each(".scores li:not(.chosen) > span:last-child", "part.innerText")
    assert len(others) == 3
    assert all(text.startswith(("≤", "\N{EN DASH}")) for text in others)
    x, y = data["frames"][0]["snakes"][0]["body"][0]
    start = quiet.run("document.querySelector('#board .line').getAttribute('d').slice(1)")
    begun = [float(number) for number in start.split("L")[0].split()]
    assert abs(begun[0] - x - 0.5) + abs(begun[1] - (7 - y - 0.5)) == 0.5


def test_late_response_is_shown(quiet: Browser, site: str, pages: Pages) -> None:
    web_site.announce(pages.broadcast, "late", 0)
    turn = Turn({"a": "down", "b": "up"}, latency={"a": 501.7, "b": 4.0})
    pages.broadcast.publish_event("late", turn)
    pages.broadcast.publish_event("late", None)
    quiet.open(f"{site}/game/late", "document.querySelectorAll('#board .snake').length === 2")
    quiet.press("1")
    assert re.search("502 ms .*500", quiet.text("#decision p"))


def test_death_after_a_missing_move(quiet: Browser, site: str, pages: Pages) -> None:
    board = Board.from_text("A . .\n^ . .\n. . B\nA: name=Ann\nB: name=Bob")
    pages.broadcast.publish_event("lost", board)
    turn = Turn({"a": "up", "b": "up"}, latency={"a": 500.0}, problems={"a": "timeout"})
    pages.broadcast.publish_event("lost", turn)
    pages.broadcast.publish_event("lost", None)
    quiet.open(f"{site}/game/lost", "document.querySelectorAll('#board .snake').length === 2")
    quiet.press("ArrowRight")
    assert re.search("wall .*missing .*turn 1$", quiet.text(".fate"))
    quiet.press("ArrowLeft", "1")
    assert "no response" in quiet.text("#decision p")


def prepare_game(browser: Browser, site: str, snake: str = "straight") -> None:
    """Open the form for a game against a snake, and wait for the preview."""
    browser.open(
        f"{site}/play?against={snake}",
        "document.querySelectorAll('#preview .snake').length === 2",
    )


def join_game(browser: Browser, site: str, snake: str = "straight") -> None:
    prepare_game(browser, site, snake)
    click(browser, "#start")
    browser.wait("document.body.classList.contains('seated')")


def test_play_with_keyboard(quiet: Browser, site: str) -> None:
    join_game(quiet, site, "cautious")
    x, y = head(quiet, 0)
    for key, (right, down) in [("ArrowLeft", (-1, 0)), ("w", (-1, -1)), ("a", (-2, -1))]:
        quiet.press(key)
        quiet.wait(
            f"(all => all.at(-1).cx.baseVal.value === {x + right}"
            f" && all.at(-1).cy.baseVal.value === {y + down})"
            "([...document.querySelectorAll('#board [data-snake=\"0\"] circle:not([class])')])"
        )
    assert quiet.text("#turn") == "3 / 3"
    for _ in range(20):
        if quiet.run("document.getElementById('again').hidden") is False:
            break
        quiet.press("a")
        time.sleep(0.15)
    quiet.wait("!document.getElementById('again').hidden")
    # The own elimination can arrive before the end of the game. The rival, wherever it began, may
    # have come in the way.
    quiet.wait("['cautious won', 'Draw'].includes(document.getElementById('outcome').innerText)")
    assert re.search(r"wall|head-to-head", quiet.text("#snakes"))
    end = quiet.text("#turn")
    quiet.press("ArrowLeft")  # the keys are the viewer's again
    assert quiet.text("#turn") != end
    assert not quiet.run("document.body.classList.contains('seated')")
    assert "against=cautious" in quiet.run("document.getElementById('again').href")


def test_play_with_touch(quiet: Browser, site: str) -> None:
    quiet.look(375, 780)
    join_game(quiet, site)
    x, y = head(quiet, 0)
    quiet.run(
        "document.querySelector('[data-move=left]')"
        ".dispatchEvent(new PointerEvent('pointerdown', {bubbles: true}))"
    )
    quiet.wait("document.getElementById('turn').textContent === '1 / 1'")
    assert head(quiet, 0) == [x - 1, y]
    left, top = point(quiet, 3, 3)
    for kind, points in [
        ("touchStart", [{"x": left, "y": top}]), ("touchMove", [{"x": left, "y": top + 30}]),
        ("touchEnd", []),
    ]:  # fmt: skip
        event = {"type": kind, "touchPoints": points}
        quiet.driver.execute_cdp_cmd("Input.dispatchTouchEvent", event)
    quiet.wait("document.getElementById('turn').textContent === '2 / 2'")
    assert head(quiet, 0) == [x - 1, y + 1]
    box = quiet.box("#pad")
    assert 0 <= box["top"] <= box["bottom"] <= 780, "board and buttons fit on the screen together"


def test_a_player_sees_only_its_own_view(quiet: Browser, site: str) -> None:
    prepare_game(quiet, site)
    quiet.enter("#view-radius", 3)
    click(quiet, "#start")
    quiet.wait("document.body.classList.contains('seated')")
    quiet.wait("document.querySelectorAll('#board .snake').length === 1")
    quiet.press("Escape", "2")
    assert quiet.run("document.querySelectorAll('#board .fog').length") == 1
    assert "?" in quiet.text("#snakes li:nth-child(2) .health")
    assert "seen" in quiet.text("#snakes li:nth-child(2) .length")
    quiet.press("ArrowUp")
    quiet.wait("document.getElementById('turn').innerText === '1 / 1'")
    lengths = quiet.each("#lengths polyline", "part.getAttribute('points')")
    assert [bool(points) for points in lengths] == [True, False]


def test_form_validates_and_adds_snakes(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/play")
    click(quiet, "#add")
    quiet.wait("document.querySelectorAll('#preview .snake').length === 3")
    quiet.enter("#keyboard-player", "minimax")
    quiet.wait("document.getElementById('error').innerText.includes('minimax')")
    quiet.complaints()  # the browser notes the refusal itself
    click(quiet, "#join")
    quiet.wait("document.querySelectorAll('#preview .snake').length === 2")
    click(quiet, ".remove")
    quiet.wait("document.querySelectorAll('#preview .snake').length === 1")
    assert quiet.text("#error") == ""
    click(quiet, "#start")
    quiet.wait("location.pathname.startsWith('/game/')")
    quiet.wait("document.querySelectorAll('#board .snake').length === 1")


@pytest.fixture
def no_games(pages: Pages) -> None:
    """Stop the games of earlier tests, because a visitor may have few games at a time."""
    manager = pages.app.extensions["arena"]
    for game_id in [*manager._games]:
        manager.stop_game(game_id)
    until(lambda: not manager._games)


@pytest.mark.usefixtures("no_games")
def test_stop_button(quiet: Browser, site: str) -> None:
    prepare_game(quiet, site)
    click(quiet, "#start")
    quiet.wait("document.getElementById('stop')?.hidden === false")
    click(quiet, "#stop")
    quiet.wait("document.getElementById('outcome').innerText.startsWith('Stopped')")
    quiet.wait("document.getElementById('stop') === null")
    quiet.wait("!document.getElementById('again').hidden")


def test_snakes_with_equal_colors_are_distinguished(
    quiet: Browser, site: str, pages: Pages
) -> None:
    board = Board.from_text("A < .\n. . .\n> B .\nC . .\nA: name=Ann\nB: name=Bob\nC: name=Cleo")
    for snake, head in zip(board.snakes, ("shades", "bendr", "no-such"), strict=True):
        snake.customizations = {"color": "#888888", "head": head, "tail": "bolt"}
    pages.broadcast.publish_event("grey", board.copy())
    expected, fill = customization.assign_colors(board.snakes), "part.getAttribute('fill')"
    assert len(set(expected)) == 3
    quiet.open(f"{site}/live")
    card = "a[href$='/game/grey']"  # others' games may be on too
    quiet.wait(f'document.querySelectorAll("{card} .thumbnail .snake").length === 3')
    assert quiet.each(f"{card} .thumbnail .snake", fill) == expected
    assert quiet.each(f"{card} .names .dot circle", fill) == expected
    quiet.open(f"{site}/game/grey", "document.querySelectorAll('#board .snake').length === 3")
    assert quiet.each("#board .snake", fill) == expected
    assert quiet.each(".snake-card .dot circle", fill) == expected
    assert quiet.each("#lengths polyline", "part.getAttribute('stroke')") == expected
    drawn = quiet.each("#board .snake", "part.querySelectorAll('.part').length")
    tails = [
        len(customization.TAILS["bolt"]) * (len(set(snake.body)) > 1) for snake in board.snakes
    ]
    heads = [len(customization.head_parts(name)) for name in ("shades", "bendr", "default")]
    assert drawn == [head + tail for head, tail in zip(heads, tails, strict=True)]
    pages.broadcast.publish_event("grey", None)


def test_titles_of_cards_name_only_existing_keys(quiet: Browser, site: str, pages: Pages) -> None:
    pages.broadcast.publish_event("ten", Board.new(11, 11, 10))
    quiet.open(f"{site}/game/ten", "document.querySelectorAll('.snake-card').length === 10")
    titles = quiet.each(".snake-card", "part.title")
    assert [title.endswith(")") for title in titles] == [True] * 9 + [False]
    pages.broadcast.publish_event("ten", None)


@pytest.fixture
def editor(quiet: Browser, site: str) -> Browser:
    """Open the position editor with an empty board."""
    quiet.open(f"{site}/lab", "document.querySelectorAll('#board .snake').length === 2")
    click(quiet, "#clear")
    quiet.wait("document.querySelectorAll('#board .snake, #board .food').length === 0")
    return quiet


def drawn(editor: Browser) -> Board:
    """Return the board of the editor's scenario."""
    editor.run("document.querySelector('#allowed input').checked = true")
    editor.run("document.getElementById('text').value = ''")
    click(editor, "#show")
    editor.wait("document.getElementById('text').value !== ''")
    (scenario,) = scenarios.from_text(editor.run("document.getElementById('text').value"))
    return scenario.board


def choose(editor: Browser, tool: str) -> None:
    editor.run(
        "[...document.querySelectorAll('.tool')]"
        ".find(button => button.innerText === arguments[0]).click()",
        tool,
    )


def test_the_fields_of_the_editor_show_the_used_numbers(editor: Browser) -> None:
    for typed, used in (("30", "25"), ("2", "3"), ("6.6", "7")):
        editor.enter("#width", typed)
        assert editor.run("document.getElementById('width').value") == used


def test_draw_position_with_mouse(editor: Browser) -> None:
    drag(editor, (2, 3))
    drag(editor, (4, 4))
    drag(editor, (4, 4))  # and away again
    choose(editor, "Hazard")
    drag(editor, (0, 0))
    drag(editor, (0, 0))
    drag(editor, (1, 0))
    drag(editor, (1, 0), shift=True)
    choose(editor, "a")
    drag(editor, (5, 5), (5, 4), (5, 3), (6, 3))
    choose(editor, "b")
    drag(editor, (9, 9), (9, 8), (9, 7), (9, 6), (9, 7))  # back again takes the tail in
    board = drawn(editor)
    assert board.food == [(2, 3)]
    assert board.hazards == [(0, 0), (0, 0)]
    assert [snake.body for snake in board.snakes] == [
        [(5, 5), (5, 4), (5, 3), (6, 3)],
        [(9, 9), (9, 8), (9, 7)],
    ]
    editor.enter('[aria-label="length of b"]', 5)
    editor.run("document.querySelector('[aria-label=\"health of b\"]').focus()")
    editor.enter('[aria-label="health of b"]', 33)
    assert editor.run("document.activeElement.value") == "33", "the field keeps the focus"
    editor.run("document.querySelectorAll('.tool')[2].focus()")
    choose(editor, "Erase")
    assert "Erase" in editor.run("document.activeElement.innerText")
    drag(editor, (5, 3), (2, 3))
    board = drawn(editor)
    assert board.food == []
    assert [(snake.length, snake.health) for snake in board.snakes] == [(2, 60), (5, 33)]


def test_draw_position_with_keys(editor: Browser) -> None:
    editor.run("document.getElementById('board').focus()")
    editor.press("f", "Enter", "ArrowRight", "ArrowUp", "h", "Enter", "ArrowUp", "1", "Enter",
              "ArrowUp", "Enter")  # fmt: skip
    board = drawn(editor)
    assert (board.food, board.hazards) == ([(0, 0)], [(1, 1)])
    assert board.snakes[0].body == [(1, 2), (1, 3)]
    assert re.match("column 1, row 3: .*a$", editor.text("#announcement"))


def test_query_snake(editor: Browser) -> None:
    click(editor, "#query")
    editor.wait("document.getElementById('error').innerText.startsWith('you ')")
    editor.complaints()  # the browser notes the refusal itself
    editor.run("document.getElementById('builtin').selectedIndex = 1")
    editor.run("document.getElementById('builtin').dispatchEvent(new Event('change'))")
    editor.wait("document.querySelectorAll('#board .snake').length > 0")
    shipped = scenarios.load(scenarios.BUILTIN_SCENARIOS[0])[0]
    assert editor.run("document.getElementById('name').value") == shipped.name
    for snake in ("cautious", "minimax"):
        editor.run("document.getElementById('snake').value = arguments[0]", snake)
        click(editor, "#query")
        editor.wait("!document.getElementById('query').disabled")  # it is while the snake thinks
        editor.wait("document.querySelector('#board .value.chosen') !== null")
        editor.wait("document.querySelector('#response .reasons') !== null")
        move = editor.text(".verdict b").split()[-1]
        assert move in shipped.allowed
        lines = editor.run("document.querySelectorAll('#board .line').length")
        assert bool(lines) == (snake == "minimax")
    drag(editor, (0, 0))
    assert editor.run("document.querySelector('#response').children.length") == 0, (
        "the response was removed"
    )
    editor.run("['query', 'clear'].forEach((id) => document.getElementById(id).click())")
    editor.wait("!document.getElementById('query').disabled")
    assert editor.run("document.querySelector('#response').children.length") == 0, (
        "the response belongs to the earlier position"
    )


def test_a_turn_of_a_game_is_taken_to_the_lab(quiet: Browser, site: str, game: str) -> None:
    for branch, turn in (("", "2"), ("&if=xx", "3")):
        quiet.open(f"{site}/game/{game}#turn=2{branch}")
        quiet.wait("document.querySelectorAll('#board .snake').length === 2")
        quiet.wait(f"document.body.classList.contains('in-branch') === {str(bool(branch)).lower()}")
        quiet.press("2")
        assert ("&if=" in quiet.run("document.getElementById('as-editor').href")) == bool(branch)
        click(quiet, "#as-editor")
        quiet.wait("location.pathname === '/lab'")
        quiet.wait("document.querySelectorAll('#board .snake').length === 2")
        assert quiet.run("document.getElementById('turn').value") == turn
        assert quiet.run("document.getElementById('you').value") == "snake_1"


def test_the_editor_keeps_the_view_radius(editor: Browser) -> None:
    text = "view_radius=3\nA < < . . . B\nA: you"
    editor.run("document.getElementById('text').value = arguments[0]", text)
    click(editor, "#read")
    editor.wait("document.querySelectorAll('#board .snake').length === 2")
    assert drawn(editor).game.settings.view_radius == 3


@pytest.mark.parametrize("width", [320, 375, 800, 1280])
def test_no_page_is_wider_than_its_window(
    browser: Browser, site: str, game: str, file: str, width: int
) -> None:
    browser.look(width, 800)
    for path, drawn in PATHS.items():
        browser.open(site + path.replace("GAME", game).replace("FILE", file))
        browser.wait(drawn)
        assert browser.run("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing(
    browser: Browser, site: str, game: str, file: str, path: str, dark: bool
) -> None:
    """Check names of focusable elements, contrast and other accessibility rules."""
    browser.look(dark=dark)
    browser.open(site + path.replace("GAME", game).replace("FILE", file), PATHS[path])
    assert browser.violations() == []


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(browser: Browser, site: str, dark: bool) -> None:
    browser.look(dark=dark)
    browser.open(f"{site}/")

    def color(name: str) -> Any:
        return browser.run(
            "getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim()",
            f"--{name}",
        )

    for text, ground in itertools.product(("ink", "pale", "accent", "bad"), ("paper", "card")):
        assert contrast(color(text), color(ground)) >= 4.5, (text, ground)
    assert contrast(color("on-accent"), color("accent")) >= 4.5
    assert contrast(color("edge"), color("card")) >= 3
    for ground in ("paper", "cell"):
        assert (luminance(color(ground)) < 0.1) == dark
