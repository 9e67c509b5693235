"""Mistakes, found by rollouts from the played move and from others."""

from __future__ import annotations

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.analysis.mistakes import (
    ROLLOUT_GAMES,
    SCREENING_GAMES,
    MoveAssessment,
    assess_moves,
    find_mistakes,
    rollout_scores,
    score_after_move,
)

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
"""To the left of A is a dead end of two cells; only the move to the right survives."""


def lost(*, reasons: bool = False) -> Replay:
    """Record a game in which A enters the dead end and hits itself two turns later."""
    replay = Replay(Board.from_text(POCKET))
    decision = Decision("left", (Reason("edge", scores={"left": 1.0}, note="keeps to the edge"),))
    for number, (mine, other) in enumerate([("left", "up"), ("left", "left"), ("up", "left")]):
        told = {"a": decision} if reasons and not number else {}
        replay.append({"a": mine, "b": other}, decisions=told)
    assert not replay.last.snake("a").alive
    return replay


def test_the_move_that_lost_a_game_is_not_the_last_one() -> None:
    (mark,), seen = find_mistakes(lost(), ["a", "b"])
    assert (mark.turn, mark.snake_id, mark.move, mark.better_move) == (0, "a", "left", "right")
    assert mark.played_win_probability == 0 < 0.1 < mark.best_win_probability < 0.3
    assert (mark.annotation, seen) == ("?", 3)
    assert find_mistakes(lost(), ["a"], seconds=0) == ([], 0)


def test_a_mark_says_what_a_move_cost() -> None:
    for fell, sign in ((0.29, "?"), (0.31, "??")):
        mark = MoveAssessment(1, "a", "left", "right", 0.5, 0.5 - fell)
        assert mark.annotation == sign


@pytest.mark.parametrize(("other", "again"), [(0.4, []), (0.5, [3, 7]), (0.62, [3, 7])])
def test_where_two_moves_cost_about_as_much_more_games_decide(
    other: float, again: list[int]
) -> None:
    asked: list[int] = []

    def mark(at: int, games: int, seed: int) -> MoveAssessment:
        fell = {3: 0.6, 7: other, 9: 0.05}[at]
        if games > ROLLOUT_GAMES:
            assert seed > SCREENING_GAMES + ROLLOUT_GAMES, "other games than before"
            asked.append(at)
            fell = {3: 0.7, 7: 0.3}[at]
        return MoveAssessment(at, "a", "left", "up", fell, 0.0)

    found = {one.turn: one.loss for one in assess_moves([3, 7, 9], mark)}
    assert asked == again
    assert max(found, key=found.__getitem__) == 3
    assert found[9] == 0.05


@pytest.mark.parametrize("snakes", [2, 4])
def test_shares_of_games_sum_to_one_and_are_those_of_the_seed(snakes: int) -> None:
    board = Board.new(7, 7, snakes)
    found = rollout_scores(board, 24)
    assert sum(found.values()) == pytest.approx(1)
    assert found == rollout_scores(board, 24) != rollout_scores(board, 24, seed=25)


def test_a_position_that_ends_the_game_needs_no_games() -> None:
    board = Board.from_text("A . . . . B\n. . . . . .\n. . . . . .")
    assert score_after_move(board, "a", "up", {"b": "left"}, 8) == 0
    assert score_after_move(board, "b", "left", {"a": "up"}, 8) == 1
    assert score_after_move(board, "a", "up", {"b": "up"}, 8) == 0.5
