"""The page that plays, in a real browser: the official rules in WebAssembly, and a game by hand."""

from __future__ import annotations

import contextlib
import random
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.engine.packing import pack
from battlesnake_gym.rules import MOVES, Game
from battlesnake_heuristics.search.evaluation import shipped
from battlesnake_heuristics.search.search import Search
from tests.server import web_site
from tests.server.browser import Browser, browser, quiet

__all__ = ["browser", "quiet"]

HERE = Path(__file__).parents[2]
ASK = """
  const [message, done] = arguments;
  window.asked ??= new Worker('worker.js', {type: 'module'});
  window.asked.onmessage = ({data}) => done(data);
  window.asked.postMessage(message);
"""


def files_served(folder: Path) -> contextlib.AbstractContextManager[str]:
    """The address of a server of these files, for as long as the block lasts."""
    return web_site.serving(Flask("files", static_folder=folder, static_url_path=""))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, built as for the site."""
    pytest.importorskip("ziglang", reason="needs the extra dev")
    sys.path.insert(0, str(HERE / "tools"))
    import build_site

    folder = tmp_path_factory.mktemp("play")
    build_site.lay_page(folder)
    with files_served(folder) as address:
        yield f"{address}/index.html"


def test_the_stated_size_is_the_size(page: str) -> None:
    """docs/five-minutes.md says how much a visitor loads."""
    with urllib.request.urlopen(page.replace("index.html", "game.wasm")) as answer:
        size = len(answer.read()) / 1000
    stated = re.search(r"a file of (\d+) kB", (HERE / "docs" / "five-minutes.md").read_text())
    assert stated is not None
    assert float(stated[1]) == pytest.approx(size, rel=0.1)


def words_of(board: Board) -> list[int]:
    return list(memoryview(pack(board)).cast("i"))


def ask(browser: Browser, message: dict[str, object]) -> dict[str, object]:
    """What the page's worker answers."""
    browser.driver.set_script_timeout(30)
    answer = browser.driver.execute_async_script(ASK, message)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    ("ruleset", "board_map", "width"),
    [("standard", "standard", 11), ("wrapped", "standard", 7), ("royale", "royale", 11)],
)
def test_the_page_plays_by_the_rules(
    browser: Browser, page: str, ruleset: str, board_map: str, width: int
) -> None:
    """The same game turn by turn as the Python rules, food included."""
    browser.open(page)
    game = Game(ruleset, board_map, seed=77)
    board = Board.new(width, width, 3, game=game)
    start = {"width": width, "height": width, "snakes": 3, "seed": 77}
    told = ask(browser, {"start": {**start, "ruleset": ruleset, "map": board_map}})
    assert told["words"] == words_of(board)
    player = snakes.make("cautious", 3)
    for _ in range(60):
        if board.is_over():
            break
        moves = {}
        for snake in board.living:
            board.you_id = snake.id
            moves[snake.id] = player(board.copy()).move
        seats = {
            str(seat): MOVES.index(moves[snake.id])
            for seat, snake in enumerate(board.snakes)
            if snake.alive
        }
        told = ask(browser, {"turn": {"moves": seats, "seconds": 0, "positions": 1}})
        board.step(moves)
        assert told["words"] == words_of(board)
    assert board.turn > 30
    assert told["over"] == board.is_over()


def test_the_page_thinks_as_the_champion(browser: Browser, page: str) -> None:
    """The same moves and values as in Python, which is held to the rules."""
    browser.open(page)
    board = Board.new(11, 11, 2, game=Game(seed=5))
    start = {"width": 11, "height": 11, "snakes": 2, "seed": 5}
    ask(browser, {"start": {**start, "ruleset": "standard", "map": "standard"}})
    champion = Search(nodes=300, evaluation=shipped())
    for _ in range(12):
        told = ask(browser, {"turn": {"moves": {}, "seconds": 0, "positions": 300}})
        thought = told["thought"]
        assert isinstance(thought, dict)
        moves = {}
        for seat, snake in enumerate(board.snakes):
            board.you_id = snake.id
            decision = champion(board)
            moves[snake.id] = decision.move
            seen = thought[str(seat)]
            values = dict(zip(MOVES, seen["values"], strict=True))
            assert MOVES[seen["move"]] == decision.move
            assert {move: value for move, value in values.items() if value is not None} == (
                decision.scores
            )
        board.step(moves)


def test_a_visitor_plays_a_game(browser: Browser, page: str) -> None:
    browser.look()
    browser.complaints()
    browser.open(page)
    browser.wait("document.body.dataset.turn === '0'", 30)
    browser.press("ArrowLeft")
    browser.wait("document.body.dataset.turn === '1'", 30)
    assert "Champion" in browser.text("#snakes")
    assert "turns ahead" in browser.text("#snakes")
    for _ in range(20):
        if browser.run("document.body.dataset.over") == "true":
            break
        before = browser.run("document.body.dataset.turn")
        browser.run("document.getElementById('left').click()")
        browser.wait(f"document.body.dataset.turn !== '{before}'", 30)
    assert "won" in browser.text("#status") or "draw" in browser.text("#status")
    browser.run("document.getElementById('new').click()")
    browser.wait("document.body.dataset.turn === '0'", 30)
    assert browser.complaints() == []


def linked(page: str, size: str = "11x11", ruleset: str = "standard", rivals: int = 1) -> str:
    """The address of the beginning of a game against weak rivals, in which chance has no part."""
    game = f"size={size}&ruleset={ruleset}&rivals={rivals}&strength=gentle&who=play&seed=5"
    return f"{page}#{game}&moves="


def is_turn(turn: int) -> str:
    return f"document.body.dataset.turn === '{turn}'"


def to_the_wall() -> tuple[str, str, str, int]:
    """Keys of the game of `linked`: two inwards (across, along), one out, its turns."""
    x, y = Board.new(11, 11, 2, game=Game(seed=5)).snakes[0].head
    keys = ("ArrowUp", "ArrowDown", y) if y < 5 else ("ArrowDown", "ArrowUp", 10 - y)
    return "ArrowRight" if x < 5 else "ArrowLeft", *keys


def test_keys_pressed_early_count_and_the_way_back_is_ignored(quiet: Browser, page: str) -> None:
    across, along, _, _ = to_the_wall()
    back = "ArrowLeft" if across == "ArrowRight" else "ArrowRight"
    quiet.open(linked(page), is_turn(0))
    quiet.press(across)
    quiet.wait(is_turn(1))
    quiet.press(back, along, across, along)
    quiet.wait(is_turn(4))
    assert quiet.run("document.body.dataset.over") == "false"


def test_a_lost_game_names_its_move_and_may_be_tried_again(quiet: Browser, page: str) -> None:
    _, _, out, room = to_the_wall()
    quiet.look(390, 844)
    quiet.open(linked(page), is_turn(0))
    for turn in range(room + 1):
        quiet.press(out)
        quiet.wait(is_turn(turn + 1))
    quiet.wait("!document.getElementById('lost').hidden")
    assert f"Turn {room} cost most: {out[5:].lower()} left you about 0 %" in quiet.text("#why")
    assert quiet.run("document.getElementById('new').getBoundingClientRect().bottom") < 844
    quiet.run("document.getElementById('replay').click()")
    for turn in (0, room + 1):
        quiet.wait(f"document.getElementById('turn').textContent === 'Turn {turn}'")
    quiet.run("document.getElementById('again').click()")
    quiet.wait(f"{is_turn(room)} && document.body.dataset.over === 'false'")
    quiet.run("document.getElementById('undo').click()")
    quiet.wait(is_turn(room - 1))


@pytest.mark.parametrize(
    "game", [("7x7", "wrapped", 1), ("11x11", "royale", 3), ("19x19", "constrictor", 2)]
)
def test_a_link_leads_to_the_same_position(
    quiet: Browser, page: str, game: tuple[str, str, int]
) -> None:
    seen = """['board', 'turn', 'size', 'ruleset', 'rivals'].map(id => document.getElementById(id))
      .map(found => found.value ?? found.innerHTML)"""
    quiet.open(linked(page, *game), is_turn(0))
    for _ in range(random.randint(1, 12)):  # those for the way back are ignored
        quiet.press(random.choice(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]))
        time.sleep(0.2)
    before = quiet.run(seen)
    link = quiet.run("document.getElementById('copy').dataset.copy")
    quiet.open(page + link, "document.body.dataset.turn")
    assert quiet.run(seen) == before


def test_a_damaged_link_is_refused(quiet: Browser, page: str) -> None:
    quiet.open(linked(page) + "udx")
    quiet.wait("document.getElementById('status').textContent.includes('damaged')")


def test_it_plays_itself_where_one_watches(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.run("document.getElementById('strength').value = 'gentle'")
    browser.enter("#who", "watch")
    browser.wait("Number(document.body.dataset.turn) > 2", 60)
    assert "You" not in browser.text("#snakes")
