import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.mdp.masks import action_mask
from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.rule_based.filters import (
    ALIVE,
    FILTERS,
    SAFE,
    bodies,
    dead_ends,
    hazards,
    head_to_heads,
    neck,
    starvation,
    walls,
)
from battlesnake_heuristics.rule_based.pipeline import Filter, filter_mask
from battlesnake_heuristics.rule_based.view import View
from tests.heuristics.conftest import board_of


def vetoed(rule: Filter, text: str, you: str = "a") -> dict[str, float]:
    view = View(board_of(text, you))
    return {move: rule.penalty(view, move) for move in MOVES if rule.penalty(view, move)}


KINDS: dict[str, tuple[Filter, ...]] = {
    "none": (),
    "wall": (walls,),
    "neck": (neck,),
    "wall+neck": (walls, neck),
    "wall+body": (walls, bodies),
    "wall+health": (walls, starvation),
    "wall+neck+health+body": ALIVE,
    "wall+body+head": (walls, bodies, head_to_heads),
    "wall+neck+health+body+head": (*ALIVE, head_to_heads),
}


@pytest.mark.parametrize("kind", KINDS)
def test_filters_agree_with_the_action_masks_of_training(played: list[Board], kind: str) -> None:
    some_were_masked = False
    for board in played:
        expected = action_mask(board.game, board, board.you.id, kind)
        assert filter_mask(board, KINDS[kind]).tolist() == expected.tolist()
        some_were_masked |= not expected.all()
    assert some_were_masked or kind in ("none", "wall")  # wrapped boards have no walls


def test_fatal_is_alive_where_a_move_is_left(played: list[Board]) -> None:
    for board in played:
        if board.safe_moves():
            expected = action_mask(board.game, board, board.you.id, "fatal")
            assert filter_mask(board, ALIVE).tolist() == expected.tolist()


def test_healing_hazards_save() -> None:
    picture = "hazard_damage_per_turn=-5\n. . .\n. A .~\n. . .\nA: health=1"
    assert set(vetoed(starvation, picture)) == {"up", "down", "left"}
    assert not vetoed(hazards, picture)


def test_head_to_heads_weigh_chance_and_outcome() -> None:
    duel = "> > A . B < <\n. . . . . . ."
    tie = vetoed(head_to_heads, duel)
    loss = vetoed(head_to_heads, duel + "\nB: length=4")
    assert set(tie) == set(loss) == {"right"}
    assert loss["right"] == 2 * tie["right"] == 1 / 2  # B can go left or down
    assert not vetoed(head_to_heads, duel + "\nA: length=4")


def test_head_to_heads_cross_joined_edges() -> None:
    assert set(vetoed(head_to_heads, "ruleset=wrapped\nA < < . > > B .")) == {"left"}


def test_dead_ends_prefer_the_larger_of_two() -> None:
    pocket = """
        . A . . > > v
        . ^ . . . . v
        . ^ . . . . v
        . ^ < < < < <
    """
    badness = vetoed(dead_ends, pocket)
    assert badness["left"] > badness.get("right", 0)


def test_hazards_count_the_damage() -> None:
    assert vetoed(hazards, ". . .\n. A .2\n. .~.\n") == {"right": 28, "down": 14}
    assert not vetoed(hazards, ". . .\n. A *2\n. . .\n")


def test_filters_are_known_by_name() -> None:
    assert list(FILTERS) == [rule.name for rule in SAFE] + ["hazards"]
    assert FILTERS["dead_ends"] is dead_ends
