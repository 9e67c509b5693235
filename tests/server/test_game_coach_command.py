"""The coach and the puzzles: commands and page."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.commands import game_export_command
from battlesnake_gym.common.untrusted_text import replace_unsafe
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis import scenarios
from battlesnake_heuristics.analysis.loss_analysis import LossAnalysis
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server.commands import (
    game_analyze_command,
    game_coach_command,
    game_eval_command,
    game_puzzles_command,
    game_scenarios_command,
)
from battlesnake_server.web import puzzle_pages
from tests.heuristics.test_mistakes import POCKET, lost
from tests.server import web_site
from tests.server.browser import Browser

pytestmark = pytest.mark.usefixtures("in_own_folder")


@pytest.fixture
def game() -> Path:
    path = Path("lost.jsonl")
    lost(reasons=True).save(path)
    return path


def test_a_survivor_has_no_loss() -> None:
    assert LossAnalysis.from_replay(lost(), "b") is None


def test_the_better_moves_are_the_scores_of_the_mistake() -> None:
    told = LossAnalysis.from_replay(lost(), "a")
    assert told is not None
    assert told.mistake is not None
    assert told.better_moves == {told.mistake.better_move: told.mistake.best_win_probability}


def test_the_coach_reports_saves_and_tests_again(
    game: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "kept.txt"
    arguments = [str(game), "--snake", "mine", "--output", target]
    status = game_coach_command.main([*arguments, "--strategy", "cautious"])
    out = capsys.readouterr().out
    assert "lost.jsonl: mine " in out
    assert "turn 0" in out
    assert "keeps to the edge" in out
    assert re.search(r"left\b.* 0%", out)
    (kept,) = scenarios.load(target)
    assert kept.allowed == ("right",)
    assert kept.board.you.name == "mine"
    assert status == (0 if "1 of 1" in out else 1)
    assert game_coach_command.main([*arguments, "--strategy", "champion", "--json"]) == 0
    told = capsys.readouterr()
    (found,) = json.loads(told.out)
    assert (found["turn"], found["death_turn"], found["played_move"]) == (0, 3, "left")
    assert [move["move"] for move in found["better_moves"]] == ["right"]
    assert found["loss"] > 0.1
    assert "1 of 1" in told.err


def test_the_coach_assumes_the_view_radius_of_a_game_without_one(
    game: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, limited = Path("kept.txt"), Path("limited.jsonl")
    radius = ["--snake", "mine", "--strategy", "cautious", "--view-radius", "3"]
    game_coach_command.main([str(game), "--output", str(target), *radius])
    assert scenarios.load(target)[0].board.game.settings.view_radius == 3
    replay = Replay.load(game)
    replay.set_default_view_radius(2)
    replay.save(limited)
    assert game_coach_command.main([str(limited), *radius]) == 2
    assert "omit --view-radius" in capsys.readouterr().err


def test_missing_reasons_are_computed_again(capsys: pytest.CaptureFixture[str]) -> None:
    lost().save("quiet.jsonl")
    arguments = ["quiet.jsonl", "--snake", "mine", "--output", "k.txt"]
    assert game_coach_command.main([*arguments, "--strategy", "hungry"]) in (0, 1)
    assert "current snake" in capsys.readouterr().out
    assert game_coach_command.main(arguments) == 1
    assert "'mine'" in capsys.readouterr().out
    broken = Path("broken.py")
    broken.write_text("def move(state):\n    return {}[0]\n")
    assert game_coach_command.main([*arguments, "--strategy", str(broken)]) == 1
    assert re.search(r"broken\.py, line 2: KeyError", capsys.readouterr().out)


def test_a_loss_without_a_mistake_fails_no_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    replay = Replay(Board.from_text("v < . . B\nA ^ < . ."))
    replay.append({"a": "left", "b": "left"})
    replay.save("trapped.jsonl")
    assert game_coach_command.main(["trapped.jsonl", "--strategy", "cautious"]) == 0
    assert "No single move lost the game." in capsys.readouterr().out


def test_a_directory_is_grouped_by_type_of_death(
    game: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost().save("again.jsonl")
    Replay(Board.from_text("A . B")).save("others.jsonl")
    game_coach_command.main([".", "--snake", "mine", "--output", "kept.txt"])
    told = capsys.readouterr()
    assert re.search(r"itself.* 2\b", told.out)
    assert re.search(r"'mine'.* 'a'", told.err)
    assert len(scenarios.load("kept.txt")) == 2


HOSTILE_NAME = "mi\ud83dne \x1b]0;title\x07\r\n\u2028<&"
"""Half an emoji, an escape sequence for the terminal, and line breaks."""


def test_names_of_strangers_are_shown_and_saved_in_all_forms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = json.dumps(lost(reasons=True).to_lines())
    for name in ("a", "b", "mine", "other"):
        text = text.replace(f'"{name}"', json.dumps(f"{HOSTILE_NAME}{name}"))
    path = Path("caf\udce9\x1b]0;title\x07.jsonl")
    path.write_text("\n".join(map(json.dumps, json.loads(text))))
    assert game_coach_command.main([str(path), "--output", "kept.txt"]) == 1
    (kept,) = scenarios.load("kept.txt")
    assert kept.board.you.name.startswith("mi�ne �]0;title�")
    assert kept.name == "caf��]0;title� turn 0"
    assert game_puzzles_command.main([str(path), "--output", "puzzles.txt"]) == 0
    assert len(scenarios.load("puzzles.txt")) == 1
    for name in ("cautious", "straight"):
        assert game_scenarios_command.main(["kept.txt", "puzzles.txt", "--snake", name]) in (0, 1)
    assert game_eval_command.main([str(path)]) == 0
    assert game_analyze_command.main([str(path), "--nodes", "100"]) == 0
    for suffix in ("svg", "png", "gif", "html"):
        assert game_export_command.main([str(path), "-o", f"game.{suffix}"]) == 0
    ElementTree.parse("game.svg")
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert replace_unsafe(printed.out) == printed.out
    for command in (game_coach_command, game_puzzles_command, game_export_command):
        assert command.main([str(path.with_name("\x1b]0;\udce9"))]) == 2
        assert "\x1b" not in capsys.readouterr().err


def test_puzzles_are_found_in_games(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = "puzzles.txt"
    assert game_puzzles_command.main([str(game.parent), "--output", out]) == 0
    (made,) = scenarios.load(out)  # the other positions have no saving move, or several
    assert made.allowed == ("right",)
    assert made.note.startswith("grade ")
    assert re.search(rf"\b1 .*{re.escape(out)}", capsys.readouterr().out)
    assert game_puzzles_command.main(["nothing"]) == 2
    assert game_puzzles_command.main([out]) == 2
    assert "--web" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        game_puzzles_command.main([str(game.parent), "--output", "."])


def test_the_built_in_puzzles_are_saved_as_scenarios() -> None:
    assert game_puzzles_command.main([]) == 0
    assert len(scenarios.load("puzzles.txt")) >= 200


def test_puzzles_are_solved_in_the_browser(quiet: Browser) -> None:
    board = Board.from_text(POCKET)
    board.you_id = "a"
    made = [Scenario(f"number {i} </script>", board, ("right",), "grade 2 of 3") for i in (1, 2)]
    with web_site.serving(puzzle_pages.create_app(made)) as site:
        quiet.open(site, "document.querySelectorAll('#board .snake').length === 2")
        assert quiet.text("#name") == "Puzzle 1"
        assert quiet.text("#note") == "Rated 1400; from number 1 </script>."
        assert "You: length" in quiet.text("#snakes")
        quiet.press("ArrowLeft")
        assert quiet.text("#verdict")
        assert "Correct" not in quiet.text("#verdict")
        quiet.wait("/You .* after 3 turns/.test(document.getElementById('verdict').textContent)")
        quiet.wait("document.querySelector('#board .dying') !== null")
        quiet.run("document.querySelector('[data-move=right]').click()")
        assert "Correct" in quiet.text("#verdict")
        quiet.press(" ")
        assert quiet.text("#name") == "Puzzle 2"
        quiet.open(site)  # A later visit continues with the first unanswered puzzle.
        assert quiet.text("#name") == "Puzzle 2"
        quiet.press("ArrowRight")
        assert re.match("2 of 2.* 1 of 2.* your rating 12", quiet.text("#count"))
        quiet.open(f"{site}#1")
        clicks = "document.querySelector(`[data-move=${move}]`).click()"
        quiet.run(f"['left', 'right'].forEach((move) => {clicks})")
        quiet.wait("/Correct.* after /.test(document.getElementById('verdict').textContent)")
        assert quiet.text("#verdict").count("after") == 1
        assert "after 3 turns" not in quiet.text("#verdict")
        quiet.run("location.hash = '#2'")
        quiet.wait("document.getElementById('name').textContent === 'Puzzle 2'")
        other = quiet.driver.current_window_handle
        quiet.driver.switch_to.new_window("tab")
        quiet.open(f"{site}#1")
        quiet.run("localStorage.setItem('puzzle-answers', '[]')")
        quiet.driver.close()
        quiet.driver.switch_to.window(other)
        quiet.wait("document.getElementById('count').textContent.includes('0 of 0')")
        made.clear()  # as after a restart with other puzzles
        quiet.run("document.querySelector('[data-move=right]').click()")
        quiet.wait("document.getElementById('verdict').textContent.includes('status 404')")
        quiet.complaints()  # the browser notes the refusal itself
