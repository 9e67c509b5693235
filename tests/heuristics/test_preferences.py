import pytest

from battlesnake_heuristics.rule_based import preferences
from battlesnake_heuristics.rule_based.pipeline import Preference
from battlesnake_heuristics.rule_based.view import View
from tests.heuristics.conftest import board_of


def liked(rule: Preference, text: str, you: str = "a") -> tuple[list[str], dict[str, float]]:
    """Return the moves that are safe, best first, and their scores."""
    board = board_of(text, you)
    scores = {move: rule.score(View(board), move) for move in board.safe_moves()}
    return sorted(scores, key=lambda move: -scores[move]), scores


def test_food_is_sought_on_foot() -> None:
    moves, scores = liked(preferences.food, ". . . . *\n. . A < <\n. . . . .\n. * . . .")
    assert moves[0] == "up"  # three steps; left and down need four
    assert scores["up"] == pytest.approx(0.9**2)
    assert scores["left"] == scores["down"]
    assert not any(liked(preferences.food, ". . .\n. A .\n. . .")[1].values())


def test_food_that_a_rival_reaches_first_counts_half() -> None:
    text = "A . . * B\n. . . . .\nB: length=4"
    assert liked(preferences.food, text)[1]["right"] == pytest.approx(0.9**2 / 2)
    assert liked(preferences.food, text + "\nA: length=5 health=9")[1]["right"] < 0.9**2


def test_food_across_joined_edges() -> None:
    text = "A . . . *\n. . . . .\n. . . . ."
    assert liked(preferences.food, "ruleset=wrapped\n" + text)[0][0] == "left"
    assert liked(preferences.food, text)[0][0] == "right"


def test_space_and_territory_prefer_the_larger_side() -> None:
    text = """
        . . A . . .
        . . ^ . . .
        . . ^ . . .
        . . ^ . . .
        . . ^ . . .
        A: length=30
    """
    for rule in (preferences.space, preferences.territory):
        moves, scores = liked(rule, text)
        assert moves[0] == "right"
        assert scores == {"right": 15 / 30, "left": 10 / 30}


def test_territory_minds_rivals_but_space_does_not() -> None:
    text = "> A . . . . B <\n. . . . . . . ."
    space, territory = liked(preferences.space, text)[1], liked(preferences.territory, text)[1]
    assert territory["right"] < space["right"]


def test_centre_and_edge_pull_apart() -> None:
    text = ". . . . .\n. . A . .\n. . . . .\n. . . . .\n. . . . ."
    assert liked(preferences.center, text)[0][0] == "down"
    assert liked(preferences.edge, text)[0][0] == "up"


def test_straight_follows_the_neck_even_over_an_edge() -> None:
    assert liked(preferences.straight, ". . . .\n> > A .\n. . . .")[0][0] == "right"
    wrapped = "ruleset=wrapped\n. . . . .\nA . . > >\n. . . . ."
    assert liked(preferences.straight, wrapped)[1] == {"up": 0, "down": 0, "right": 1}
    start = liked(preferences.straight, ". . .\n. A .\n. . .")[1]
    assert set(start.values()) == {0}


def test_tail_is_followed() -> None:
    assert liked(preferences.tail, ". . . .\n. > v .\n. A < .\n. . . .")[0][0] == "up"


def test_hunt_goes_for_shorter_heads_only() -> None:
    text = "> > A . . B <\n. . . . . . .\n. . . . . . ."
    assert liked(preferences.hunt, text + "\nA: length=4")[0][0] == "right"
    assert not any(liked(preferences.hunt, text)[1].values())


def test_distance_keeps_from_longer_heads() -> None:
    text = ". . . . . . .\n> > A . B < <\n. . . . . . ."
    assert liked(preferences.distance, text)[0][-1] == "right"
    assert set(liked(preferences.distance, text + "\nA: length=4")[1].values()) == {1}


def test_unharmed_counts_damage_and_not_hunger() -> None:
    scores = liked(preferences.unharmed, ". .~.\n. A *2\n. .2.\nA: health=50")[1]
    assert scores == {"up": -0.14, "down": -0.28, "left": 0, "right": 0}
