from __future__ import annotations

import time

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES, Game, Snake, State
from battlesnake_server.live.fallback import choose_fallback_move, is_normal_size
from battlesnake_server.live.time_budget import _margin_s


def board_of(picture: str) -> Board:
    board = Board.from_text(picture)
    board.you_id = "a"
    return board


def test_it_is_safe_and_prefers_room() -> None:
    decision = choose_fallback_move(
        board_of("""
        . . . . .
        . > > v .
        . ^ A < .
        . ^ . . .
        . . . . .
        """),
        "no time",
    )
    assert decision.move == "down"
    assert decision.reasons[0].note == "no time"


def test_it_does_not_walk_into_a_dead_end() -> None:
    decision = choose_fallback_move(
        board_of("""
        . . . . . . . . .
        B < < < < . . . .
        . . . A . . . . .
        . . . ^ < < . . .
        . . . > > ^ . . .
        A: length=20
        B: length=40
        """),
        "no time",
    )
    assert decision.move == "right", "left has more exits, and no way out"
    rules = [reason.rule for reason in decision.reasons]
    assert rules == ["fallback", "values", "neck", "bodies", "dead_ends"]


@pytest.mark.parametrize("picture", ["A", "A <", "v <\nA ^", "B A C"])
def test_there_is_always_a_move(picture: str) -> None:
    assert choose_fallback_move(board_of(picture), "").move in MOVES


def test_a_board_without_you_gets_a_move() -> None:
    assert choose_fallback_move(Board.from_text("A . B"), "").move == MOVES[0]


EXITS = """
. . . . .
. . A < .
. . > ^ .
. . . . .
"""


def test_the_free_cells_beside_each_move_are_counted() -> None:
    """The tail's cell becomes free; cells off the board do not count."""
    assert choose_fallback_move(board_of(EXITS), "").scores == {"up": 2, "left": 3, "down": 2}


@pytest.mark.parametrize(
    ("width", "height", "count", "ordinary"),
    [(25, 25, 16, True), (26, 25, 1, False), (5, 5, 17, False), (26, 24, 16, True)],
)
def test_larger_boards_than_any_games_get_a_look_at_the_next_cells(
    width: int, height: int, count: int, ordinary: bool
) -> None:
    """The snake follows the edge around the corner, and up has the most exits."""
    bodies = [[(0, 1), (1, 1), (1, 0)]] + [[(i % 5, 4)] * 3 for i in range(1, count)]
    rivals = [Snake(chr(97 + i), body) for i, body in enumerate(bodies)]
    board = Board.from_state(State(0, width, height, rivals), Game())
    board.you_id = "a"
    assert is_normal_size(board) == ordinary
    decision = choose_fallback_move(board, "")
    assert decision.move == "up"
    assert (len(decision.reasons) > 1) == ordinary


def test_it_walks_through_the_edge_where_the_game_wraps() -> None:
    board = board_of("""
    ruleset=wrapped
    . . . .
    A B . .
    . ^ . .
    """)
    assert board.game.ruleset == "wrapped"
    assert set(choose_fallback_move(board, "").scores) == {"up", "down", "left"}


def test_it_costs_next_to_nothing() -> None:
    board = Board.new(25, 25, 8, game=Game(seed=1))
    board.you_id = "snake_3"
    fastest = min(_seconds(board) for _ in range(20))
    assert fastest < _margin_s(0.5), "what a live snake keeps back for it"


def _seconds(board: Board) -> float:
    began = time.thread_time()
    choose_fallback_move(board, "")
    return time.thread_time() - began
