"""Policy rules: which part decides, and the same rules as an action mask."""

import re
from pathlib import Path

import numpy as np
import pytest

from battlesnake_gym.mdp import masks
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics import Filter, View, When, to_mask_function
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.filters import ALIVE, dead_ends
from tests.heuristics.conftest import board_of
from tests.heuristics.test_pipeline import OPEN, leftward

VALUES = {"up": 0.5, "down": 0.9, "left": 0.1, "right": 0.8}


@Filter
def not_down(view: View, move: str) -> float:
    """Never goes down."""
    return float(move == "down")


def close(view: View) -> bool:
    """The policy sees little difference."""
    first, second, *_ = sorted(view.values.values(), reverse=True)
    return first - second < 0.5


def decide(*rules: object) -> Decision:
    return policy_rules.apply_policy_rules(VALUES, board_of(OPEN), rules, ALIVE)  # type: ignore[arg-type]


def test_without_objection_the_policy_decides() -> None:
    decision = decide(dead_ends)
    assert decision.move == "down"
    assert decision.reasons[-1].rule == "decided"
    assert re.search("policy.* down", decision.reasons[-1].note)
    said = next(reason for reason in decision.reasons if reason.rule == "policy")
    # Right leads into the neck and does not affect the scale.
    assert said.scores == {"up": 0.5, "down": 1.0, "left": 0.0}


def test_a_filter_overrules_the_policy_and_is_named() -> None:
    decision = decide(not_down)
    assert decision.move == "up"
    assert re.match("not_down.* down", decision.reasons[-1].note)


def test_a_preference_outweighs_the_policy_by_its_weight() -> None:
    assert decide(leftward * 0.9).move == "down"
    decision = decide(leftward * 1.1)
    assert decision.move == "left"
    assert re.match("leftward.* down", decision.reasons[-1].note)
    twice = decide(leftward * 1.2, leftward * -0.1)
    assert re.match("leftward.* down", twice.reasons[-1].note)


def test_a_tree_looks_at_the_networks_values() -> None:
    decision = decide(When(close, [leftward * 2]))
    assert decision.move == "left"
    assert "close?" in [reason.rule for reason in decision.reasons]
    far = policy_rules.apply_policy_rules(
        VALUES | {"down": 9.0}, board_of(OPEN), [When(close, [leftward * 2])], ALIVE
    )
    assert far.move == "down"


FILE = """
from battlesnake_gym.mdp import masks
from battlesnake_heuristics import Filter, to_mask_function


@Filter
def not_down(view, move):
    "Never goes down."
    return float(move == "down")


rules = [not_down]
masks.register("not-down", to_mask_function(rules))
"""


def test_the_rules_of_a_file_are_a_training_mask_too(tmp_path: Path) -> None:
    from battlesnake_gym import VectorBattlesnake

    file = tmp_path / "my_rules.py"
    file.write_text(FILE)
    (rule,) = policy_rules.load(file)
    assert policy_rules.load(str(file)) == (rule,)
    games = VectorBattlesnake(3, 2, 7, 7, action_mask="fatal+not-down")
    _, infos = games.reset(seed=1)
    for _ in range(20):
        down = infos["action_mask"][infos["alive"]][:, 1]
        other = infos["action_mask"][infos["alive"]][:, [0, 2, 3]].any(-1)
        assert not (down & other).any(), "down only where nothing else is left"
        _, _, _, _, infos = games.step(infos["action_mask"].argmax(-1))
    assert masks.check_kind("not-down") == "not-down"


def test_trees_and_preferences_make_masks() -> None:
    of_policies = When(lambda view: view.values["up"] > 0, [leftward], [When(bool, [leftward])])
    allows = to_mask_function([When(lambda view: True, [not_down]), leftward, of_policies])
    board = board_of(OPEN)
    np.testing.assert_array_equal(allows(board.game, board, "a"), [True, False, True, True])


@pytest.mark.parametrize(
    ("text", "message"),
    [("", r"\brules\b"), ("rules = []", r"\brules\b"), ("rules = [len]", r"\blen\b")],
)
def test_a_file_without_rules_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "none.py"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        policy_rules.load(file)
    with pytest.raises(ValueError, match=r".*absent\.py"):
        policy_rules.load(tmp_path / "absent.py")
