"""The analysis in a real browser: what it shows, and what one does with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, Game
from battlesnake_heuristics.analysis import game_analysis, scenarios
from battlesnake_heuristics.analysis.game_analysis import (
    AnalyzedPosition,
    GameAnalysis,
    analysis_path,
    file_sha256,
)
from battlesnake_heuristics.analysis.mistakes import MoveAssessment, final_scores
from battlesnake_heuristics.analysis.position_analysis import CandidateMove, Line, SnakeAssessment
from battlesnake_server.replay_viewer import analysis_queue
from battlesnake_server.web import replay_pages
from tests.heuristics.test_game_analysis import played
from tests.processes import fetch
from tests.server import web_site
from tests.server.browser import Browser


def analysed(path: Path) -> GameAnalysis:
    """An analysis of what was played, with one move that lost 40 points and one that lost 15."""
    replay = Replay.load(path)
    boards = list(replay.boards())
    found = GameAnalysis(file_sha256(path), 50, 0, len(replay.turns) - 1, final_scores(replay.last))
    chances = [0.5, 0.6, 0.2, 0.2, 0.35, 0.2, *[0.2] * 20]
    for turn, (board, after) in enumerate(zip(boards, replay.turns, strict=False)):
        judged = {}
        for snake in board.living:
            other = next(s.id for s in board.living if s.id != snake.id)
            chance = chances[turn] if snake.id == "snake_0" else 1 - chances[turn]
            best = next(
                (m for m in board.safe_moves(snake.id) if m != after.moves["snake_0"]), MOVES[0]
            ) if snake.id == "snake_0" else after.moves[snake.id]  # fmt: skip
            line: Line = {snake.id: (best, "up"), other: ("down", "left")}
            choices = (
                CandidateMove(best, chance, 1.0, line),
                CandidateMove("left", 0.01, -9.0, line),
            )
            judged[snake.id] = SnakeAssessment(chance, choices)
        found.positions[turn] = AnalyzedPosition(judged, after.moves)
    found.mistakes = [
        MoveAssessment(turn, "snake_0", replay.turns[turn].moves["snake_0"], "up", before, 0.2)
        for turn, before in ((1, 0.6), (4, 0.35))
    ]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("analysed")
    path = root / "known.jsonl.gz"
    played().save(path)
    analysed(path).save(analysis_path(path))
    played(seed=8, turns=4).save(root / "unknown.jsonl")
    crowd = Replay(Board.new(19, 19, 8, game=Game(seed=2)))
    crowd.append({snake.id: "up" for snake in crowd.last.snakes})
    crowd.save(root / "crowd.jsonl")
    return root


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    app = replay_pages.create_app([folder])
    with web_site.serving(app) as address:
        yield address
    app.extensions["analyses"].close()


@pytest.fixture
def page(quiet: Browser, site: str) -> Browser:
    """The page of the analysed game; its console must stay empty."""
    quiet.open(f"{site}/replay/known.jsonl.gz")
    quiet.wait("document.querySelectorAll('#marks button').length === 2")
    return quiet


def test_chances_lines_and_turning_points(page: Browser) -> None:
    page.wait("document.querySelectorAll('#board .hint').length === 2")
    assert page.run("document.querySelector('#chances').getAttribute('aria-label')") == (
        "snake_0 about 50 %, snake_1 about 50 %"
    )
    assert page.text(".snake-card .chance") == "≈ 50 %"
    marks = page.run("[...document.querySelectorAll('#marks button')].map(b => b.innerText)")
    assert "turn 1" in marks[0]
    assert "??" in marks[0]
    assert "about 60 → 20 %" in marks[0]
    assert "??" not in marks[1]
    page.run("document.querySelector('#marks button').click()")
    assert page.turn() == 1
    page.wait("document.querySelectorAll('#board .hint').length === 2")
    assert page.run("document.querySelectorAll('#lines li').length") == 2
    page.press("ArrowRight")
    assert page.text("#board .badge text") == "??"
    page.wait("location.hash === '#turn=2&snake=1'")
    page.press("m")
    assert page.turn() == 4


def test_the_graph_is_clicked_into(page: Browser) -> None:
    assert page.run("document.querySelectorAll('#graph polyline').length") == 2
    page.run(
        "(box => document.getElementById('graph').dispatchEvent(new MouseEvent('click',"
        " {bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + 5})))"
        "(document.getElementById('graph').getBoundingClientRect())"
    )
    assert page.turn() == 6


def test_what_if_leaves_the_game_and_comes_back(page: Browser, folder: Path, site: str) -> None:
    board = Replay.load(folder / "known.jsonl.gz").board(3)
    page.run("location.hash = '#turn=3&snake=1'")
    page.wait("document.getElementById('turn').innerText.startsWith('3')")
    move = board.safe_moves("snake_0")[0]
    page.run(f"document.getElementById('if-{move}').click()")
    page.wait("document.body.classList.contains('off-game')")
    assert page.text("#if-state") == "Off the game: 1 turn after turn 3."
    page.run("document.getElementById('if-on').click()")
    page.wait("document.getElementById('if-state').innerText.includes('2 turns')")
    page.wait("/&if=..-..$/.test(location.hash)")
    address = page.run("location.href")
    groups = page.run("new URLSearchParams(location.hash.slice(1)).get('if')")
    assert groups[0] == move[0]
    shown = page.run("document.getElementById('as-text').href")
    assert Board.from_text(fetch(shown)).turn == 5
    page.run("document.getElementById('if-back').click()")
    page.wait("document.getElementById('if-state').innerText.includes('1 turn ')")
    page.run("document.getElementById('if-leave').click()")
    page.wait("!document.body.classList.contains('off-game')")
    assert page.turn() == 3
    page.driver.get("about:blank")
    page.open(address, "document.getElementById('if-state').innerText.includes('2 turns')")
    link = page.run("document.getElementById('as-scenario').href")
    (made,) = scenarios.from_text(fetch(link))
    assert (made.board.turn, made.board.you.id) == (5, "snake_0")


def test_a_game_is_analysed_by_a_button(
    browser: Browser, site: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(analysis_queue, "MOVE_TIME_MS", 1.0)
    monkeypatch.setattr(analysis_queue, "NICE_INCREMENT_ANALYSIS", 0)
    browser.look()
    browser.open(f"{site}/replay/unknown.jsonl", "!document.getElementById('analyse').hidden")
    browser.run("document.getElementById('analyse').click()")
    browser.wait("!document.getElementById('chances').hidden", 300)
    browser.wait("document.querySelectorAll('#graph polyline').length > 0")
    found = game_analysis.load_existing(folder / "unknown.jsonl")
    assert found is not None
    assert browser.complaints() == []


def test_reasons_of_eight_snakes_stand_beside_the_board(browser: Browser, site: str) -> None:
    browser.look(1280, 800)
    browser.open(f"{site}/replay/crowd.jsonl")
    browser.wait("document.querySelectorAll('#board .snake').length === 8")
    browser.press("8")
    box = browser.run(
        "(b => [b.left, b.top])(document.getElementById('thoughts').getBoundingClientRect())"
    )
    board = browser.run("document.getElementById('board').getBoundingClientRect().right")
    assert box[0] > board - 1
    assert box[1] < 500


def test_columns_and_rows_are_numbered(page: Browser) -> None:
    labels = page.run(
        "[...document.querySelectorAll('#board .label')].map(label => label.textContent)"
    )
    assert labels == [str(number) for number in [*range(11), *range(11)]]


def test_who_died_at_the_edge_stays_within_the_board(browser: Browser, site: str) -> None:
    browser.look()
    browser.open(f"{site}/replay/crowd.jsonl#turn=1")
    browser.wait("document.querySelectorAll('#board .snake').length > 0")
    assert browser.run("getComputedStyle(document.getElementById('board')).overflow") == "hidden"
    assert browser.complaints() == []
