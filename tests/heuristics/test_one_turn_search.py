from battlesnake_heuristics.rule_based.one_turn_search import foresight
from battlesnake_heuristics.rule_based.view import View
from tests.heuristics.conftest import board_of


def scores(text: str) -> dict[str, float]:
    board = board_of(text)
    before = board.copy()
    found = {move: foresight.score(View(board), move) for move in board.safe_moves()}
    assert board == before
    return found


def test_the_worst_answer_counts() -> None:
    found = scores("> A . B <\n. . . . ^\n. . . . .")
    assert found["right"] == -1  # B, which is longer, may enter it too
    assert found["down"] > 0


def test_no_way_on_is_nearly_death() -> None:
    found = scores(". A . . .\n> ^ . . .\n^ . . . .\n^ < . . .")
    assert found == {"left": -0.5, "right": found["right"]}
    assert found["right"] > 0


def test_a_far_rival_is_no_threat() -> None:
    far = "> A . . . . . . . . . . B <\n. . . . . . . . . . . . . ."
    assert min(scores(far).values()) > 0


def test_what_chance_will_bring_is_not_known() -> None:
    # The hazard ring shrinks on the next turn and is fatal; only the seed determines the side.
    royale = "ruleset=royale shrink_every_n_turns=1 hazard_damage_per_turn=100"
    picture = ". . . . . . .\n> A . . . B <\n. . . . . . .\n. . . . . . ."
    told = {str(scores(f"{royale} seed={seed}\n{picture}")) for seed in range(8)}
    assert len(told) == 1
