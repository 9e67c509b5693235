import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.rule_based.filters import ALIVE, SAFE, bodies, dead_ends, walls
from battlesnake_heuristics.rule_based.pipeline import (
    Filter,
    Pipeline,
    Preference,
    When,
    best_after_filters,
    explain,
    filter_mask,
)
from battlesnake_heuristics.rule_based.view import View
from tests.heuristics.conftest import board_of

OPEN = ". . . . .\n. . . . .\n. . A < <\n. . . . .\n. . . . ."
CORNER = ". . .\n. . .\nA < <"  # only up survives
TRAPPED = (
    "> v .\nA < .\nA: length=5"  # walls on the left and below, its own body above and on the right
)


@Filter
def everything(view: View, move: str) -> float:
    """Objects to all moves."""
    return {"up": 3, "down": 1, "left": 2, "right": 1}[move]


@Preference
def upward(view: View, move: str) -> float:
    """Likes up."""
    return float(move == "up")


@Preference
def leftward(view: View, move: str) -> float:
    """Likes left."""
    return float(move == "left")


def yes(view: View) -> bool:
    """Always."""
    return True


def no(view: View) -> bool:
    """Never."""
    return False


def test_filters_rule_out_and_say_so() -> None:
    decision = Pipeline(*SAFE)(board_of(CORNER))
    assert decision.move == "up"
    assert [reason.rule for reason in decision.reasons] == ["walls", "neck"]
    assert decision.reasons[0].vetoed == ("down", "left")
    assert decision.reasons[0].note
    assert decision.scores == {"up": 0.0}


def test_a_filter_against_everything_keeps_the_least_bad() -> None:
    decision = Pipeline(everything, upward)(board_of(OPEN))
    assert set(decision.scores) == {"down", "right"}
    assert decision.reasons[0].vetoed == ("up", "left")
    assert re.search("down.* right", decision.reasons[0].note)


def test_with_nothing_safe_left_the_earlier_filter_decides() -> None:
    board = board_of(TRAPPED)
    assert board.safe_moves() == []
    assert set(Pipeline(walls, bodies)(board).scores) == {"up", "right"}
    assert set(Pipeline(bodies, walls)(board).scores) == {"down", "left"}
    assert Pipeline(*SAFE)(board).move == "up"  # right is the neck


def test_preferences_add_up_by_weight() -> None:
    decision = Pipeline(upward, leftward * 0.5, 2 * leftward)(board_of(OPEN))
    assert decision.move == "left"
    assert decision.scores == {"up": 1, "down": 0, "left": 2.5, "right": 0}
    assert [reason.scores["left"] for reason in decision.reasons] == [0, 0.5, 2]


def test_a_tree_walks_one_branch_and_says_which() -> None:
    tree = When(no, [upward], [When(yes, [leftward], [upward])])
    decision = Pipeline(tree)(board_of(OPEN))
    assert decision.move == "left"
    assert [(r.rule, r.note) for r in decision.reasons] == [
        ("no?", "Never: no"),
        ("yes?", "Always: yes"),
        ("leftward", "Likes left"),
    ]


@pytest.mark.parametrize("result", [None, math.nan, "x"])
@pytest.mark.parametrize("kind", [Filter, Preference])
def test_a_rule_without_a_number_is_named(result: Any, kind: type[Filter | Preference]) -> None:
    def careless(view: View, move: str) -> Any:
        return result

    for steps in ([kind(careless)], [walls, When(yes, [kind(careless)])]):
        with pytest.raises(ValueError, match=f"careless must return a number .* got {result!r}"):
            Pipeline(*steps)(board_of(OPEN))


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Pipeline, (yes,), "yes is not a rule"),
        (Pipeline, (SAFE,), r"is not a rule; .* \* before a list"),
        (When, (yes, upward), "must be a list, got Preference"),
        (When, (yes, [], [no]), "no is not a rule"),
        (When, (upward, []), "condition must be a function, got Preference"),
    ],
)
def test_a_step_that_is_no_rule_is_rejected(
    kind: Callable[..., object], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(*arguments)


def test_the_seed_breaks_ties() -> None:
    def moves(seed: int) -> list[str]:
        snake = Pipeline(*ALIVE, seed=seed)
        return [snake(board_of(OPEN)).move for _ in range(30)]

    assert moves(1) == moves(1) != moves(2)
    assert set(moves(1)) == {"up", "down", "left"}


@pytest.mark.parametrize("values", [[-5, -1, -9, -2], [-math.inf, -1, -1, 0]])
def test_negative_values_never_lose_to_a_vetoed_move(values: list[float]) -> None:
    assert best_after_filters(values, board_of(CORNER), SAFE).move == "up"


def test_the_highest_value_left_wins_whatever_the_signs() -> None:
    for values in itertools.permutations([-4.0, -3.0, 2.0, 1.0]):
        by_move = dict(zip(MOVES, values, strict=True))
        best = max(("up", "down", "left"), key=by_move.__getitem__)
        for given in (values, by_move):
            decision = best_after_filters(given, board_of(OPEN), SAFE)
            assert decision.move == best
            assert decision.scores[best] == by_move[best]
            assert decision.reasons[0].rule == "values"
            assert decision.reasons[0].scores == by_move


def test_nan_and_missing_values_come_last() -> None:
    nan = math.nan
    assert best_after_filters([nan, -7, nan, nan], board_of(OPEN), SAFE).move == "down"
    assert best_after_filters({"down": -7, "right": 3}, board_of(OPEN), SAFE).move == "down"
    assert best_after_filters([nan] * 4, board_of(CORNER), SAFE).move == "up"
    decision = best_after_filters([nan, -7, nan, 1], board_of(OPEN), SAFE)
    assert decision.reasons[0].scores == {"down": -7, "right": 1}
    assert decision.reasons[0].note.endswith("up, left")


def test_equal_values_go_to_the_first_move() -> None:
    assert best_after_filters([1, 1, 1, 1], board_of(OPEN), []).move == "up"
    assert best_after_filters([1, 1, 1, 1], board_of(OPEN), [everything]).move == "down"


def test_filtered_still_moves_with_nothing_safe_left() -> None:
    decision = best_after_filters([-4, -3, -2, -1], board_of(TRAPPED), SAFE)
    assert decision.move == "up"
    assert best_after_filters([-4, -3, -2, -1], board_of(TRAPPED), [walls]).move == "right"


def test_filtered_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match="number"):
        best_after_filters([1, 2, 3], board_of(OPEN), [])
    with pytest.raises(ValueError, match="unknown moves"):
        best_after_filters({"north": 1}, board_of(OPEN), [])


def test_a_mask_is_never_all_false() -> None:
    assert filter_mask(board_of(CORNER), SAFE).tolist() == [True, False, False, False]
    assert filter_mask(board_of(OPEN), [everything]).tolist() == [True] * 4
    assert filter_mask(board_of(TRAPPED), [walls, bodies]).tolist() == [True, False, False, True]
    assert filter_mask(board_of(OPEN), []).dtype == bool


def test_explain_names_every_rule() -> None:
    text = explain(Pipeline(*SAFE, upward * 2)(board_of(CORNER)))
    assert text.splitlines()[0] == "up"
    assert "walls" in text
    assert re.search("down.* left", text)
    assert re.search(r"upward .*up \+2\.00", text)


def test_dead_ends_speak_only_where_they_matter() -> None:
    assert all(
        dead_ends.penalty.__name__ != r.rule for r in Pipeline(*SAFE)(board_of(OPEN)).reasons
    )
