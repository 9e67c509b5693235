"""The coach and the puzzles, as commands and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.records.json_lines import ReplayError
from battlesnake_gym.records.replay import Replay
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.judge import scenarios
from battlesnake_heuristics.judge.analysis import Analyst
from battlesnake_heuristics.judge.coaching import EFFORTS, lesson, puzzle
from battlesnake_heuristics.judge.scenarios import Scenario
from battlesnake_server.commands import coach
from battlesnake_server.web import puzzles
from tests.server import web_site
from tests.server.browser import Browser

POCKET = """
. . . . . . .
. . . . . > B
. . . . . ^ .
. . . . . . .
v < < < . . .
> > v . . . .
. . A . . . .
A: name="mine"
B: name="other"
"""
"""To the left of A is a pocket of two cells: only the right saves it."""


def lost(*, reasons: bool = False) -> Replay:
    """A goes into the pocket and bites itself two turns later."""
    replay = Replay(Board.from_text(POCKET))
    decision = Decision("left", (Reason("edge", scores={"left": 1.0}, note="keeps to the edge"),))
    for number, (mine, other) in enumerate([("left", "up"), ("left", "left"), ("up", "left")]):
        told = {"a": decision} if reasons and not number else {}
        replay.append({"a": mine, "b": other}, decisions=told)
    assert not replay.last.snake("a").alive
    return replay


@pytest.fixture
def game(tmp_path: Path) -> Path:
    path = tmp_path / "lost.jsonl"
    lost(reasons=True).save(path)
    return path


def test_the_last_saving_move_is_found() -> None:
    found = lesson(lost(), "a", Analyst(positions=20_000))
    assert found is not None
    assert (found.turn, found.played, found.died) == (0, "left", 3)
    assert [choice.move for choice in found.saving] == ["right"]
    assert found.kind == "bit itself, trapped before"
    assert found.cost > 0.1
    assert lesson(lost(), "b", Analyst(positions=100)) is None
    stopped = lesson(lost(), "a", Analyst(positions=20_000), seconds=0)
    assert stopped is not None
    assert (stopped.board, stopped.walked) == (None, 1)


def test_the_coach_tells_keeps_and_asks_again(
    game: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "kept.txt"
    arguments = [str(game), "--snake", "mine", "--output", str(target)]
    status = coach.main([*arguments, "--strategy", "cautious"])
    out = capsys.readouterr().out
    assert "lost.jsonl: mine bit itself, trapped before on turn 3" in out
    assert "saved it was on turn 0" in out
    assert "keeps to the edge" in out
    assert "It played left; right (" in out
    (kept,) = scenarios.load(target)
    assert kept.allowed == ("right",)
    assert kept.board.you.name == "mine"
    assert status == (0 if "1 of 1 mastered" in out else 1)
    assert coach.main([*arguments, "--strategy", "champion"]) == 0
    assert "1 of 1 mastered" in capsys.readouterr().out


def test_reasons_are_asked_for_again_where_none_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost().save(tmp_path / "quiet.jsonl")
    arguments = [
        str(tmp_path / "quiet.jsonl"),
        "--snake",
        "mine",
        "--output",
        str(tmp_path / "k.txt"),
    ]
    assert coach.main([*arguments, "--strategy", "hungry"]) in (0, 1)
    assert "What its rules say now:" in capsys.readouterr().out
    assert coach.main(arguments) == 1
    assert "'mine' is not a snake that can be asked again" in capsys.readouterr().out


def test_a_folder_is_told_by_kinds_of_death(
    game: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost().save(tmp_path / "again.jsonl")
    Replay(Board.from_text("A . B")).save(tmp_path / "others.jsonl")
    coach.main([str(tmp_path), "--snake", "mine", "--output", str(tmp_path / "kept.txt")])
    told = capsys.readouterr()
    assert "bit itself, trapped before      2" in told.out
    assert "skipped: no snake is called 'mine'" in told.err
    assert len(scenarios.load(tmp_path / "kept.txt")) == 2


def test_a_name_that_no_game_has_is_refused(
    game: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 0 says that the snake masters all, which no one has seen here."""
    assert coach.main([str(tmp_path), "--snake", "minne"]) == 2
    assert "unknown snake 'minne'; did you mean mine?" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert coach.main([str(tmp_path / "empty"), "--snake", "mine"]) == 2
    assert "holds no recorded game" in capsys.readouterr().err


def test_the_coach_tells_in_json(
    game: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(game), "--snake", "mine", "--output", str(tmp_path / "kept.txt"), "--json"]
    assert coach.main([*arguments, "--strategy", "champion"]) == 0
    told = capsys.readouterr()
    (found,) = json.loads(told.out)
    assert (found["turn"], found["died"], found["played"]) == (0, 3, "left")
    assert [move["move"] for move in found["saving"]] == ["right"]
    assert "1 of 1 mastered" in told.err


def test_names_are_ids_too() -> None:
    replay = lost()
    assert replay.snake_id("mine") == replay.snake_id("a") == "a"
    with pytest.raises(ReplayError, match="no snake is called 'me'; give a name or id of 'mine'"):
        replay.snake_id("me")
    made = Scenario.from_replay(replay, 1, "mine", ["up"])
    assert made.board.you_id == "a"


# --- puzzles -------------------------------------------------------------------------------------


def test_a_puzzle_has_one_saving_move_and_a_grade() -> None:
    board = Board.from_text(POCKET)
    board.you_id = "a"
    solved = puzzle(board)
    assert solved is not None
    assert solved[0] == "right"
    assert 1 <= solved[1] <= len(EFFORTS)
    free = Board.from_text("A . . . .\n. . . . .\n. . . . .\n. . . . B")
    free.you_id = "a"
    assert puzzle(free) is None


def test_puzzles_are_found_in_games(
    game: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "puzzles.txt"
    assert puzzles.main([str(game.parent), "--output", str(out)]) == 0
    made = scenarios.load(out)
    assert made[0].allowed == ("right",)
    assert made[0].note.startswith("grade ")
    assert f"{len(made)} puzzles kept as {out}" in capsys.readouterr().out
    assert puzzles.main([str(tmp_path / "nothing")]) == 2


@pytest.fixture
def site() -> Iterator[str]:
    board = Board.from_text(POCKET)
    board.you_id = "a"
    made = [Scenario(f"number {i} </script>", board, ("right",), "grade 2 of 3") for i in (1, 2)]
    with web_site.serving(puzzles.create_app(made)) as address:
        yield address


def test_puzzles_are_solved_in_the_browser(browser: Browser, site: str) -> None:
    browser.look()
    browser.complaints()
    browser.open(site, "document.querySelectorAll('#board .snake').length === 2")
    assert browser.text("#name") == "number 1 </script>"
    assert browser.text("#task") == "One move saves mine. Which?"
    browser.press("ArrowLeft")
    assert "That one loses" in browser.text("#verdict")
    browser.run("document.querySelector('[data-move=right]').click()")
    assert "Right" in browser.text("#verdict")
    browser.press(" ")
    assert browser.text("#name") == "number 2 </script>"
    browser.press("ArrowRight")
    assert browser.text("#count") == "2 of 2; 1 of 2 right at once"
    assert browser.complaints() == []
