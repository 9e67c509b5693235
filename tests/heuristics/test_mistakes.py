"""Mistakes, found by rollouts from the played move and from others."""

import dataclasses

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.analysis import mistakes
from battlesnake_heuristics.analysis.mistakes import (
    MISTAKE_LOSS,
    MoveAssessment,
    _assess_move,
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
    assert mark.played_win_probability == 0 < 0.7 < mark.best_win_probability < 0.85
    assert mark.annotation == "??"
    assert mark.scores == {"left": 0, "right": mark.best_win_probability}


def with_limited_view(replay: Replay, view_radius: int) -> Replay:
    """Return a replay whose snakes saw only the cells near their heads."""
    game = replay.first.game
    settings = dataclasses.replace(game.settings, view_radius=view_radius)
    first = Board.from_state(replay.first, dataclasses.replace(game, settings=settings))
    limited = Replay(first)
    for turn in replay.turns:
        limited.append(turn.moves)
    return limited


AMBUSH = """
turn=9
. . . . . . . . .
. . . . . . . . .
> > > A . B < < <
^ . . . . . . . ^
^ . . . . . . . ^
. . . . . . . . ^
"""
"""A and B step to the same cell; B is longer."""


def test_with_limited_view_a_mistake_is_a_move_that_the_snake_could_see() -> None:
    (mark,) = find_mistakes(with_limited_view(lost(), 1), ["a"])
    assert (mark.turn, mark.snake_id, mark.move, mark.better_move) == (0, "a", "left", "right")
    ambush = Replay(Board.from_text(AMBUSH))
    ambush.append({"a": "right", "b": "left"})
    (mark,) = find_mistakes(ambush, ["a"])
    assert (mark.turn, mark.move) == (9, "right")
    (seen,) = find_mistakes(with_limited_view(ambush, 9), ["a"])
    assert seen.scores == pytest.approx(mark.scores), "nothing is hidden"
    assert not find_mistakes(with_limited_view(ambush, 2), ["a"]), "B may be as long as A"


def test_a_mark_says_what_a_move_cost() -> None:
    for fell, sign in ((0.29, "?"), (0.31, "??")):
        mark = MoveAssessment(1, "a", "left", "right", 0.5, 0.5 - fell)
        assert mark.annotation == sign


@pytest.mark.parametrize(
    ("loss", "deviation", "rollouts"),
    [(0.05, 0, 8), (0.12, 0, 24), (0.2, 0, 72), (0.3, 0, 24), (0.05, 0.18, 24), (0.05, 0.5, 72)],
)
def test_rollouts_end_when_the_verdict_is_clear(
    loss: float, deviation: float, rollouts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board.from_text(POCKET)
    asked: list[int] = []

    def score(board: Board, snake: str, moves: dict[str, str], seed: int) -> float:
        if moves["a"] != "left":
            return 0.5
        asked.append(seed)
        return 0.5 - loss + (deviation if seed % 2 else -deviation)

    monkeypatch.setattr(mistakes, "_rollout_score", score)
    monkeypatch.setattr(mistakes, "MIN_MISTAKE_ROLLOUTS", 20)
    mark = _assess_move(board, "a", {"a": "left", "b": "up"}, (8, 16, 48), seed=7)
    assert asked == [*range(7, 7 + rollouts)], "the rounds use different seeds"
    assert mark.loss == pytest.approx(loss)
    assert (mark.loss >= MISTAKE_LOSS - 1e-9) == (loss >= 0.2)


@pytest.mark.parametrize("snakes", [2, 4])
def test_scores_after_equal_moves_sum_to_one_and_depend_on_the_seed(snakes: int) -> None:
    board = Board.new(7, 7, snakes)
    moves = {snake.id: "up" for snake in board.snakes}

    def scores(seed: int) -> list[float]:
        return [
            score_after_move(board, snake, "up", moves, range(seed, seed + 24)) for snake in moves
        ]

    assert sum(scores(1)) == pytest.approx(1), "the end of a game for one snake changes no score"
    assert scores(1) == scores(1) != scores(25)


def test_a_position_that_ends_the_game_needs_no_games() -> None:
    board = Board.from_text("A . . . . B\n. . . . . .\n. . . . . .")
    assert score_after_move(board, "a", "up", {"b": "left"}, range(8)) == 0
    assert score_after_move(board, "b", "left", {"a": "up"}, range(8)) == 1
    assert score_after_move(board, "a", "up", {"b": "up"}, range(8)) == 0.5
