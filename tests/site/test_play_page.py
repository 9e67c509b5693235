"""The page that plays, in a real browser: the official rules in WebAssembly, and a game by hand."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.engine.packing import pack
from battlesnake_gym.rules import MOVES, Game
from battlesnake_heuristics.search.evaluation import shipped
from battlesnake_heuristics.search.search import Search
from tests.server.browser import Browser, browser

__all__ = ["browser"]

HERE = Path(__file__).parents[2]
ASK = """
  const [message, done] = arguments;
  window.asked ??= new Worker('worker.js', {type: 'module'});
  window.asked.onmessage = ({data}) => done(data);
  window.asked.postMessage(message);
"""


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: pytest shows what matters."""


@contextlib.contextmanager
def files_served(folder: Path) -> Iterator[str]:
    """The address of a server of these files, for as long as the block lasts."""
    handler = functools.partial(Silent, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


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


def test_it_plays_itself_where_one_watches(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.run("document.getElementById('strength').value = 'gentle'")
    browser.run(
        "(who => { who.value = 'watch'; who.dispatchEvent(new Event('change')) })"
        "(document.getElementById('who'))"
    )
    browser.wait("Number(document.body.dataset.turn) > 2", 60)
    assert "You" not in browser.text("#snakes")
