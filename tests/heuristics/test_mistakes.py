"""Mistakes, found by rollouts from the played move and from others."""

from __future__ import annotations

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.analysis.mistakes import (
    ROLLOUT_GAMES,
    SCREENING_ROUNDS,
    MoveAssessment,
    assess_moves,
    find_mistakes,
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
    (mark,) = find_mistakes(lost(), ["a", "b"])
    assert (mark.turn, mark.snake_id, mark.move, mark.better_move) == (0, "a", "left", "right")
    assert mark.played_win_probability == 0 < 0.1 < mark.best_win_probability < 0.3
    assert mark.annotation == "?"
    assert mark.scores == {"left": 0, "right": mark.best_win_probability}


def test_a_mark_says_what_a_move_cost() -> None:
    for fell, sign in ((0.29, "?"), (0.31, "??")):
        mark = MoveAssessment(1, "a", "left", "right", 0.5, 0.5 - fell)
        assert mark.annotation == sign


@pytest.mark.parametrize(("other", "again"), [(0.4, []), (0.5, [7, 3]), (0.62, [7, 3])])
def test_two_moves_of_similar_loss_are_measured_again(other: float, again: list[int]) -> None:
    asked: list[int] = []

    def mark(at: int, games: int, seed: int) -> MoveAssessment:
        fell = {3: 0.6, 7: other}.get(at, 0.05)
        if games > ROLLOUT_GAMES:
            assert seed > sum(games for games, _ in SCREENING_ROUNDS) + ROLLOUT_GAMES
            asked.append(at)
            fell = {3: 0.7, 7: 0.3}[at]
        return MoveAssessment(at, "a", "left", "up", fell, 0.0)

    found = assess_moves([*range(40)], mark)
    assert sorted(asked) == sorted(again)
    assert [one.turn for one in found] == [3, 7], "9 lost too little"


@pytest.mark.parametrize("snakes", [2, 4])
def test_scores_after_equal_moves_sum_to_one_and_depend_on_the_seed(snakes: int) -> None:
    board = Board.new(7, 7, snakes)
    moves = {snake.id: "up" for snake in board.snakes}

    def scores(seed: int) -> list[float]:
        return [score_after_move(board, snake, "up", moves, 24, seed) for snake in moves]

    assert sum(scores(1)) == pytest.approx(1), "the end of a game for one snake changes no score"
    assert scores(1) == scores(1) != scores(25)


def test_a_position_that_ends_the_game_needs_no_games() -> None:
    board = Board.from_text("A . . . . B\n. . . . . .\n. . . . . .")
    assert score_after_move(board, "a", "up", {"b": "left"}, 8) == 0
    assert score_after_move(board, "b", "left", {"a": "up"}, 8) == 1
    assert score_after_move(board, "a", "up", {"b": "up"}, 8) == 0.5
