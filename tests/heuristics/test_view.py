import itertools

import pytest

from battlesnake_gym.boards.board import Board, BoardError
from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.rule_based.view import View
from tests.heuristics.conftest import board_of


def seen(text: str, you: str = "a") -> View:
    return View(board_of(text, you))


def test_a_board_without_you_is_refused() -> None:
    with pytest.raises(BoardError, match="you_id"):
        View(Board.from_text("A < < ."))


def test_blocked_is_what_safe_moves_leaves_out(played: list[Board]) -> None:
    for board in played:
        view = View(board)
        for move in MOVES:
            target = view.targets[move]
            safe = target and not view.blocked(move) and view.health_after(target) > 0
            assert bool(safe) == (move in board.safe_moves())


def test_bodies_leave_from_the_tail_and_stacked_ones_later() -> None:
    view = seen("""
        . . . . .
        A < < . .
        . . . . .
        A: length=4
    """)
    tail, middle, head = (view.grid.bit((x, 1)) for x in (2, 1, 0))
    for turns, left in [(0, head | middle | tail), (1, head | middle | tail), (2, head | middle)]:
        assert view.blocked_cells(turns) == left
    assert view.blocked_cells(3) == head
    assert view.blocked_cells(4) == view.blocked_cells(99) == 0


def test_a_constrictor_never_leaves() -> None:
    view = seen("ruleset=constrictor\n. . . .\nA < < .\nA: length=4")
    assert (
        view.blocked_cells(99)
        == view.blocked_cells(1)
        == view.blocked_cells(0)
        == view.grid.bits([(0, 0), (1, 0), (2, 0)])
    )


def test_deadly_hazards_are_no_way_for_anybody() -> None:
    view = seen("hazard_damage_per_turn=100\n. . . .\nA < < .~")
    assert view.blocked_cells(50) == view.grid.bit((3, 0))
    assert seen("hazard_damage_per_turn=14\n. . . .\nA < < .~").blocked_cells(50) == 0


def test_room_counts_what_opens_in_time() -> None:
    # Three cells are free; then its own tail moves away repeatedly.
    view = seen("""
        v < . A .
        v ^ . ^ .
        v ^ . ^ .
        v ^ < ^ .
        > > > ^ .
    """)
    assert view.num_reachable("right") == 5
    assert view.num_reachable("left") >= view.you.length
    assert view.num_reachable("up") == 0
    assert view.turns_to("left", view.grid.bit((2, 1))) == 4
    assert view.turns_to("right", view.grid.bit((2, 1))) is None


def test_flood_finds_walking_distances_on_an_empty_board(played: list[Board]) -> None:
    for board in played[::7]:
        view = View(board)
        for move in board.safe_moves():
            layers = view.flood(move)
            assert layers[0] == view.grid.bit(view.targets[move])
            for turns, (layer, larger) in enumerate(itertools.pairwise(layers), start=2):
                assert layer & larger == layer
                new = larger & ~layer
                assert not new & view.blocked_cells(turns)
                assert not new & ~view.grid.spread(layer)


def test_claims_go_to_the_sooner_then_to_the_longer() -> None:
    equal = seen(". . . . . . .\nA < < . > > B\n. . . . . . .")
    halves = [[(x, y) for x in columns for y in range(3)] for columns in ((0, 1, 2), (4, 5, 6))]
    assert equal.territories() == [equal.grid.bits(half) for half in halves]
    longer = seen(". . . . . . .\nA < < . > > B\n. . . . . . .\nA: length=4")
    mine, other = longer.territories()
    assert mine.bit_count() > other.bit_count()
    assert not mine & other


def test_first_covers_what_a_move_claims(played: list[Board]) -> None:
    for board in played[::5]:
        view = View(board)
        for move in board.safe_moves():
            claimed = view.first_reached(move)
            assert claimed & ~view.grid.everything == 0
            for rival_cells in view.territories(view.grid.bit(view.targets[move]))[1:]:
                assert not claimed & rival_cells
