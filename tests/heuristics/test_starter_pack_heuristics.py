"""A file with the starter pack's class works as a snake, as policy rules and as a mask."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common import extensions
from battlesnake_gym.mdp import masks
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.starter_pack_heuristics import (
    register_starter_pack,
)
from tests import processes

OLD = """
import numpy as np
try:
    from heuristics import Heuristics
except ModuleNotFoundError:
    from inference.inference_src.heuristics import Heuristics


class MyBattlesnakeHeuristics(Heuristics):
    def __init__(self):
        pass

    def around(self, state, json):
        head = json["you"]["body"][0]
        border = int((state.shape[0] - json["board"]["height"]) / 2)
        i, j = head["y"] + border, head["x"] + border
        return [state[i + 1, j], state[i - 1, j], state[i, j - 1], state[i, j + 1]]

    @Heuristics.negative_heuristics
    def banned_wall_hits(self, state, snake_id, turn_count, health, json):
        return [cell[1] != -1 for cell in self.around(state, json)]

    @Heuristics.positive_heuristics
    def go_to_food_if_close(self, state, snake_id, turn_count, health, json):
        food = [cell[0] == 1 for cell in self.around(state, json)]
        return food if health[snake_id] < 50 and sum(food) == 1 else [True, True, True, True]

    def run(self, state, snake_id, turn_count, health, json, action):
        allowed = self.banned_wall_hits(state, snake_id, turn_count, health, json)
        log_string = "" if allowed[int(np.argmax(action))] else "Hit wall "
        food = self.go_to_food_if_close(state, snake_id, turn_count, health, json)
        return int(np.argmax(np.where(np.array(allowed) & food, action, -1e6))), log_string
"""

CORNER = """
B < . . .
. . . . .
. . . . .
* . . . .
A < . . .
A: health=40 you
"""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pack's file; processes of later tests do not search its folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(extensions, "_folders", [])
    (tmp_path / "battlesnake_heuristics.py").write_text(OLD)
    return tmp_path / "battlesnake_heuristics.py"


def test_it_sees_what_the_pack_s_endpoint_showed(old: Path) -> None:
    seen: list[Any] = []

    def run(*given: Any, action: object) -> tuple[int, str]:
        seen.extend(given)
        return 0, ""

    with snakes.capture_registrations():
        (rule,) = register_starter_pack(old, "mine")
    rule.heuristics.run = run  # type: ignore[attr-defined]
    policy_rules.apply_policy_rules({}, Board.from_text(CORNER), [rule])
    array, number, turn, health, request = seen
    assert array.shape == (21, 21, 3)
    assert (array[7] == -1).all()
    assert array[8, 8:13, 1].tolist() == [5, 1, 0, 0, 0], "row 0 is at the bottom"
    assert array[9, 8:13, 0].tolist() == [1, 0, 0, 0, 0]
    assert array[12, 8:13, 2].tolist() == [5, 1, 0, 0, 0]
    assert (number, turn, health[0]) == (0, 1, 40)
    assert request["you"]["body"][0] == {"x": 0, "y": 0}


def test_hidden_segments_are_not_on_the_board(old: Path) -> None:
    board = Board.from_text(f"view_radius=1\n{CORNER}")
    with snakes.capture_registrations():
        register_starter_pack(old, "mine")
        mask = masks.action_mask(board.game, board, "a", "mine")
    assert mask.tolist() == [True, False, False, True]


def test_it_plays_rules_and_masks(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # a directory there is named heuristics
    with snakes.capture_registrations():
        rules = register_starter_pack(old, "mine")
        board = Board.from_text(CORNER)
        decision = snakes.make("mine", seed=3)(board)
        assert decision.move == "up"
        values = {"up": 0.1, "down": 0.9, "left": 0.2, "right": 0.5}
        ruled = policy_rules.apply_policy_rules(values, board, rules)
        assert ruled.move == "up"
        assert "Hit wall" in [reason.note for reason in ruled.reasons]
        mask = masks.action_mask(board.game, board, board.you.id, "mine")
        assert mask.tolist() == [True, False, False, True]


def test_the_file_may_be_beside_the_extension(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory may be theirs too, though the file has the name of our package."""
    monkeypatch.chdir(Path(__file__).parents[2])
    mine = old.with_name("mine.py")
    name = register_starter_pack.__name__
    mine.write_text(
        f"from {register_starter_pack.__module__} import {name}\n{name}({old.name!r}, 'own')\n"
    )
    assert snakes.make(str(mine), seed=3)(Board.from_text(CORNER)).move == "up"
    words = ("game", "scenarios", "--snake", "mine.py", "--json")
    done = processes.run(*processes.COMMAND, *words, cwd=old.parent)
    assert json.loads(done.stdout), done.stderr


def test_a_base_class_beside_it_is_the_one_that_it_has(old: Path) -> None:
    old.with_name("heuristics.py").write_text(
        "class Heuristics:\n"
        "    def negative_heuristics(func):\n"
        "        def negative_heuristics_func(self, *args):\n"
        "            return [not one for one in func(self, *args)]\n"
        "        return negative_heuristics_func\n"
        "    positive_heuristics = lambda func: func\n"
    )
    with snakes.capture_registrations():
        register_starter_pack(old, "turned")
        board = Board.from_text(CORNER)
        mask = masks.action_mask(board.game, board, board.you.id, "turned")
    assert mask.tolist() == [False, True, True, False]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="heuristics 'MyBattlesnakeHeuristics'"):
        register_starter_pack(tmp_path / "other.py", "other")


def test_training_is_masked_by_it(old: Path, monkeypatch: Any) -> None:
    from battlesnake_gym.env.vector import VectorBattlesnake

    with snakes.capture_registrations():
        register_starter_pack(old, "walls-of-old")
    games = VectorBattlesnake(2, num_snakes=2, width=5, height=5, action_mask="walls-of-old")
    same = VectorBattlesnake(2, num_snakes=2, width=5, height=5, action_mask="wall")
    for one in (games, same):
        one.reset(seed=5)
    for _ in range(20):
        moves = np.full((2, 2), 0, np.uint8)
        infos, wanted = games.step(moves)[-1], same.step(moves)[-1]
        assert (infos["action_mask"] == wanted["action_mask"]).all()
