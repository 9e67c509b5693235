"""The widgets of the notebooks, by their callbacks: what a click or a typed letter sets off."""

import sys
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.snakes import Decision, Reason

pytest.importorskip("ipywidgets", reason="needs the extra notebooks")
sys.path.insert(0, str(Path(__file__).parents[2] / "notebooks"))

from board_widget import Editor, GameView, reasons_table, record

CORRIDOR = "A . . . B"
OPEN = """
. . . . .
. > A . *
. . . . .
. . . . B
A: health=20
"""


@pytest.fixture
def view() -> GameView:
    """Two snakes that run into each other on turn 2, with a reason for a's moves."""
    replay = Replay(Board.from_text(CORRIDOR))
    for score in (0.25, 0.5):
        why = Decision("right", (Reason("forward", ("up",), {"right": score}),), {"right": score})
        replay.append({"a": "right", "b": "left"}, decisions={"a": why})
    return GameView(replay)


def test_record_keeps_moves_and_reasons() -> None:
    start = Board.from_text(OPEN)
    replay = record(start, {"a": snakes.make("hungry"), "b": snakes.make("cautious")}, max_turns=3)
    assert start == Board.from_text(OPEN)
    assert len(replay.turns) == 3
    for turn in replay.turns:
        assert {name: why.move for name, why in turn.decisions.items()} == turn.moves
        assert all(why.reasons for why in turn.decisions.values())


def test_reasons_stand_under_their_moves() -> None:
    why = Decision("down", (Reason("a<b", ("up",), {"down": 1.5}, "says & says"),), {"down": 1.5})
    head, rule, total = reasons_table(why).split("<tr>")[1:]
    cells = [cell.partition(">")[2].partition("<")[0] for cell in head.split("<th")[1:]]
    assert cells == ["rule", "up", "► down", "left", "right", "says"]
    cells = [cell.partition(">")[2].partition("</td")[0] for cell in rule.split("<td")[1:]]
    assert cells == ["a&lt;b", "✗", "+1.50", "", "", "says &amp; says"]
    assert "sum" in total
    assert "+1.50" in total


def test_steps_and_stays_within_the_game(view: GameView) -> None:
    pictures = [view.picture.value]
    view.back.click()
    assert view.turn.value == 0
    for _ in range(3):
        view.forward.click()
        pictures.append(view.picture.value)
    assert view.turn.value == 2
    assert len(set(pictures)) == 3
    assert view.board.turn == 2
    view.back.click()
    assert view.turn.value == 1


def test_scrubbing_and_playing_move_together(view: GameView) -> None:
    view.play.value = 1
    assert view.turn.value == 1
    view.turn.value = 0
    assert view.play.value == 0


def test_reasons_are_those_of_the_turn_and_snake(view: GameView) -> None:
    assert "+0.25" in view.reasons.value
    view.forward.click()
    assert "+0.50" in view.reasons.value
    assert view.board.you_id == "a"
    view.snake.value = "b"
    assert view.decision is None
    assert view.board.you_id == "b"
    assert "No move" in view.reasons.value


def test_jumps_to_the_turn_before_a_death(view: GameView) -> None:
    assert [label for label, _ in view.death.options[1:]] == [
        "a out on turn 2: head-collision",
        "b out on turn 2: head-collision",
    ]
    view.death.index = 2
    assert (view.snake.value, view.turn.value) == ("b", 1)
    view.death.index = 1
    assert (view.snake.value, view.turn.value) == ("a", 1)


def test_a_view_of_a_game_that_began_later() -> None:
    replay = Replay(Board.from_text("turn=7\n" + CORRIDOR))
    replay.append({"a": "right", "b": "left"})
    view = GameView(replay, "b")
    assert (view.turn.min, view.turn.max, view.board.turn) == (7, 8, 7)
    view.forward.click()
    assert view.board.turn == 8


def test_the_boards_of_a_view_are_copies(view: GameView) -> None:
    view.board.food.append((2, 0))
    assert view.board.food == []


def board_of(editor: Editor) -> Board:
    assert editor.board is not None
    return editor.board


def answer(editor: Editor) -> str:
    assert editor.decision is not None
    return editor.decision.move


def test_typing_changes_picture_and_answer() -> None:
    editor = Editor(Board.from_text(OPEN), "hungry")
    assert answer(editor) == "right"
    picture = editor.picture.value
    editor.text.value = editor.text.value.replace(". > A . *", "* A < . .")
    assert board_of(editor).food == [(0, 2)]
    assert answer(editor) == "left"
    assert editor.picture.value != picture


def test_the_marked_snake_is_asked_else_the_first() -> None:
    editor = Editor(Board.from_text(OPEN))
    assert board_of(editor).you_id == "a"
    editor.text.value = OPEN + "B: you\n"
    assert board_of(editor).you_id == "b"


def test_another_snake_is_asked() -> None:
    editor = Editor(Board.from_text(OPEN), "cautious")
    assert "Approaches food" in editor.reasons.value
    editor.name.value = "minimax"
    assert "leaf evaluations" in editor.reasons.value


def test_a_text_that_is_no_board_is_told() -> None:
    editor = Editor(Board.from_text(OPEN))
    editor.text.value = "A . ?"
    assert "?" in editor.reasons.value
    assert (editor.board, editor.decision) == (None, None)
    editor.on.click()  # nothing to play
    assert editor.text.value == "A . ?"
    editor.text.value = OPEN
    assert editor.decision is not None


def test_a_strategy_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def strategy(board: Board, seconds: float | None = None) -> Decision:
        raise KeyError("<oops>")

    snakes.names()  # loads the others
    monkeypatch.setitem(snakes._factories, "failing", lambda seed: strategy)
    editor = Editor(Board.from_text(OPEN), "failing")
    assert "KeyError(&#x27;&lt;oops&gt;&#x27;)" in editor.reasons.value
    editor.name.value = "hungry"
    assert answer(editor) == "right"


def test_plays_on_and_back() -> None:
    editor = Editor(Board.from_text(OPEN), "hungry")
    before = editor.text.value
    editor.undo.click()
    assert editor.text.value == before
    editor.on.click()
    assert board_of(editor).turn == 1
    assert board_of(editor).snakes[0].head == (3, 2)
    editor.on.click()
    assert board_of(editor).snakes[0].health == 100
    editor.undo.click()
    editor.undo.click()
    assert editor.text.value == before


def test_a_game_that_is_over_stays() -> None:
    editor = Editor(Board.from_text(OPEN), "hungry")
    editor.text.value = "solo=False\nA . ."
    text = editor.text.value
    assert board_of(editor).is_over()
    editor.on.click()
    assert editor.text.value == text
