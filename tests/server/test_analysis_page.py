"""Tests of the analysis panel in a browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from PIL import ImageSequence

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, Game
from battlesnake_heuristics.analysis import game_analysis, scenarios
from battlesnake_heuristics.analysis.game_analysis import (
    GameAnalysis,
    _AnalyzedPosition,
    _file_sha256,
    analysis_path,
)
from battlesnake_heuristics.analysis.mistakes import MoveAssessment, final_scores
from battlesnake_heuristics.analysis.position_analysis import CandidateMove, Line, SnakeAssessment
from battlesnake_server.replay_viewer import analysis_queue
from battlesnake_server.web import replay_pages
from tests.heuristics.test_game_analysis import played
from tests.processes import fetch
from tests.server import web_site
from tests.server.browser import Browser


def analyzed(path: Path) -> GameAnalysis:
    """Return an analysis with one move that lost 40 percentage points and one that lost 15."""
    replay = Replay.load(path)
    boards = list(replay.boards())
    found = GameAnalysis(
        _file_sha256(path), 10_000, 0, len(replay.turns) - 1, final_scores(replay.last)
    )
    probabilities = [0.5, 0.6, 0.2, 0.2, 0.35, 0.2, *[0.2] * 20]
    for turn, (board, after) in enumerate(zip(boards, replay.turns, strict=False)):
        judged = {}
        for snake in board.living:
            other = next(s.id for s in board.living if s.id != snake.id)
            probability = probabilities[turn] if snake.id == "snake_0" else 1 - probabilities[turn]
            best = next(
                (m for m in board.safe_moves(snake.id) if m != after.moves["snake_0"]), MOVES[0]
            ) if snake.id == "snake_0" else after.moves[snake.id]  # fmt: skip
            line: Line = {snake.id: (best, "up"), other: ("down", "left")}
            choices = (
                CandidateMove(best, probability, 1.0, line),
                CandidateMove("left", 0.01, -9.0, line),
            )
            judged[snake.id] = SnakeAssessment(probability, choices)
        mistakes = [
            MoveAssessment(turn, "snake_0", after.moves["snake_0"], "up", before, 0.2)
            for before in ([{1: 0.6, 4: 0.35}[turn]] if turn in (1, 4) else [])
        ]
        found.positions[turn] = _AnalyzedPosition(judged, after.moves, mistakes)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("analyzed")
    path = root / "known.jsonl.gz"
    played().save(path)
    analyzed(path).save(analysis_path(path))
    started = analyzed(path)
    for turn in range(3, 12):
        del started.positions[turn]
    (root / "started.jsonl.gz").write_bytes(path.read_bytes())
    started.save(analysis_path(root / "started.jsonl.gz"))
    played(seed=8, turns=4).save(root / "unknown.jsonl")
    crowd = Replay(Board.new(19, 19, 8, game=Game(seed=2)))
    crowd.append({snake.id: "up" for snake in crowd.last.snakes})
    crowd.save(root / "crowd.jsonl")
    return root


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with web_site.serving(replay_pages.create_app([folder])) as address:
        yield address


@pytest.fixture
def page(quiet: Browser, site: str) -> Browser:
    """Open the page of the analyzed game; the test fails if the console reports errors."""
    quiet.open(f"{site}/replay/known.jsonl.gz")
    quiet.wait("document.querySelectorAll('#mistakes button').length === 2")
    return quiet


def test_win_probabilities_lines_and_mistakes(page: Browser) -> None:
    page.wait("document.querySelectorAll('#board .hint').length === 2")
    label = page.run("document.querySelector('#win-probabilities').getAttribute('aria-label')")
    assert re.search("snake_0.* 50%.* snake_1.* 50%", label)
    assert page.text(".snake-card .win-probability") == "≈ 50%"
    mistakes = page.each("#mistakes button", "part.innerText")
    assert "turn 1" in mistakes[0]
    assert "??" in mistakes[0]
    assert "about 60 → 20%" in mistakes[0]
    assert "??" not in mistakes[1]
    page.run("document.querySelector('#mistakes button').click()")
    assert page.turn() == 1
    page.wait("document.querySelectorAll('#board .hint').length === 2")
    assert page.run("document.querySelectorAll('#lines li').length") == 2
    page.press("ArrowRight")
    assert page.text("#board .badge text") == "??"
    page.wait("location.hash === '#turn=2&snake=1'")
    page.press("m")
    assert page.turn() == 4


def test_turns_without_analysis_have_no_win_probabilities(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/replay/started.jsonl.gz")
    quiet.wait("document.querySelector('.win-probability').innerText === '≈ 50%'")
    quiet.press("End", "ArrowLeft")
    assert quiet.each(".win-probability", "part.textContent") == ["", ""]


@pytest.mark.parametrize(("x", "turn"), [(0.45, 0), (6, 6), (11.55, 12)])
def test_click_into_the_graph(page: Browser, x: float, turn: int) -> None:
    assert page.run("document.querySelectorAll('#graph polyline').length") == 2
    page.run(
        "(graph => graph.dispatchEvent(new MouseEvent('click', {bubbles: true,"
        " clientX: graph.getScreenCTM().e + graph.getScreenCTM().a * arguments[0]})))"
        "(document.getElementById('graph'))",
        x,
    )
    assert page.turn() == turn


def test_a_branch_that_arrives_late_is_dropped(page: Browser) -> None:
    page.run("['if-on', 'forward'].forEach((id) => document.getElementById(id).click())")
    loaded = "performance.getEntriesByType('resource').some(({name}) => name.includes('?if='))"
    page.wait(loaded)
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert page.turn() == 1
    assert not page.run("document.body.classList.contains('in-branch')")


def test_branch_and_return(page: Browser, folder: Path, site: str) -> None:
    board = Replay.load(folder / "known.jsonl.gz").board(3)
    page.run("location.hash = '#turn=3&snake=1'")
    page.wait("document.getElementById('turn').innerText.startsWith('3')")
    move = board.safe_moves("snake_0")[0]
    page.run(f"document.getElementById('if-{move}').click()")
    page.wait("document.body.classList.contains('in-branch')")
    assert re.search("1 turn .*turn 3", page.text("#if-state"))
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
    page.wait("!document.body.classList.contains('in-branch')")
    assert page.turn() == 3
    page.wait("!location.hash.includes('if=')")
    page.run("location.href = arguments[0]", address)
    page.wait("document.getElementById('if-state').innerText.includes('2 turns')")
    page.driver.get("about:blank")
    page.open(address, "document.getElementById('if-state').innerText.includes('2 turns')")
    link = page.run("document.getElementById('as-scenario').href")
    (made,) = scenarios.from_text(fetch(link))
    assert (made.board.turn, made.board.you.id) == (5, "snake_0")


def test_analyze_button(
    browser: Browser, site: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(analysis_queue, "_ANALYSIS_NICE_INCREMENT", 0)
    browser.look()
    browser.open(f"{site}/replay/unknown.jsonl", "!document.getElementById('analyze').hidden")
    browser.complaints()
    with monkeypatch.context() as full:
        full.setattr(analysis_queue, "_MAX_QUEUED", -1)
        browser.run("document.getElementById('analyze').click()")
        browser.wait("document.getElementById('analysis-state').innerText.includes('try again')")
    assert len(browser.complaints()) == 1  # the browser notes the refusal itself
    browser.wait("!document.getElementById('analyze').hidden")
    browser.run("document.getElementById('analyze').click()")
    browser.wait("!document.getElementById('win-probabilities').hidden", 300)
    browser.wait("document.querySelectorAll('#graph polyline').length > 0")
    found = game_analysis.GameAnalysis.load_current(folder / "unknown.jsonl")
    assert found is not None
    assert browser.complaints() == []


def test_decision_of_eighth_snake_is_beside_the_board(browser: Browser, site: str) -> None:
    browser.look(1280, 800)
    browser.open(f"{site}/replay/crowd.jsonl")
    browser.wait("document.querySelectorAll('#board .snake').length === 8")
    browser.press("8")
    assert browser.box("#decision")["left"] > browser.box("#board")["right"] - 1
    assert browser.box("#decision")["top"] < 500


def test_columns_and_rows_are_numbered(page: Browser) -> None:
    labels = page.each("#board .label", "part.textContent")
    assert labels == [str(number) for number in [*range(11), *range(11)]]


def test_elimination_at_the_edge_stays_within_the_board(browser: Browser, site: str) -> None:
    browser.look()
    browser.open(f"{site}/replay/crowd.jsonl#turn=1")
    browser.wait("document.querySelectorAll('#board .snake').length > 0")
    assert browser.run("getComputedStyle(document.getElementById('board')).overflow") == "hidden"
    assert browser.complaints() == []


def test_the_viewer_saves_a_gif_up_to_the_shown_turn(browser: Browser, site: str) -> None:
    browser.look()
    browser.complaints()
    browser.open(f"{site}/replay/known.jsonl.gz#turn=3", "document.getElementById('gif')")
    browser.wait("document.getElementById('turn').textContent.startsWith('3')")
    assert len(list(ImageSequence.Iterator(browser.saved_gif()))) == 4
    assert browser.complaints() == []


def test_the_embed_snippet_frames_the_game_at_the_shown_turn(browser: Browser, site: str) -> None:
    browser.open(f"{site}/replay/known.jsonl.gz#turn=3", "document.getElementById('embed')")
    browser.wait("document.getElementById('embed').dataset.copy?.endsWith('#turn=3')")
    address = browser.run("new URL(document.getElementById('embed').dataset.copy, location).href")
    with web_site.serving(Flask("another site")) as other:
        browser.open(other)
        browser.run(f"document.body.innerHTML = `<iframe src='{address}'></iframe>`")
        browser.driver.switch_to.frame(0)
        try:
            browser.wait("document.getElementById('shown').textContent === 'turn 3'")
            assert browser.text("#play") == "Play"
        finally:
            browser.driver.switch_to.default_content()
    # The other site has no pages.
    assert [one for one in browser.complaints() if not one.startswith(other)] == []
