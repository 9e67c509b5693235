from battlesnake_gym.board import Board
from heuristics.foresight import foresight
from heuristics.view import View


def scores(text):
    board = Board.from_text(text)
    board.you_id = "a"
    before = board.copy()
    found = {move: foresight.score(View(board), move) for move in board.safe_moves()}
    assert board == before
    return found


def test_the_worst_answer_counts():
    found = scores("> A . B <\n. . . . ^\n. . . . .")
    assert found["right"] == -1  # B, the longer, may come too
    assert found["down"] > 0


def test_no_way_on_is_nearly_death():
    found = scores(". A . . .\n> ^ . . .\n^ . . . .\n^ < . . .")
    assert found == {"left": -0.5, "right": found["right"]}
    assert found["right"] > 0


def test_a_far_rival_is_no_threat():
    far = "> A . . . . . . . . . . B <\n. . . . . . . . . . . . . ."
    assert min(scores(far).values()) > 0


def test_food_that_may_appear_is_not_known():
    board = Board.from_text("seed=5 map=standard\n> A . . . B <\n. . . . . . .\n. . . . . . .")
    board.you_id = "a"
    blind = Board.from_text("> A . . . B <\n. . . . . . .\n. . . . . . .")
    blind.you_id = "a"
    for move in board.safe_moves():
        assert foresight.score(View(board), move) == foresight.score(View(blind), move)
