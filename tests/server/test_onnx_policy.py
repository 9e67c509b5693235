import hashlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_gym import policy_file
from battlesnake_gym.boards.board import Board
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv
from battlesnake_gym.policy_file import OnnxPolicy, PolicyError
from battlesnake_gym.rules import Game
from battlesnake_server.strategy_loader import _PolicySnake, strategy_factory
from tests.processes import until

MakePolicy = Callable[..., Path]


def test_a_policy_is_loaded_and_asked(policy_file: Path) -> None:
    policy = OnnxPolicy.load(policy_file)
    assert policy.observation_shape(11, 11) == policy.observation.shape(11, 11)
    values = policy.action_scores(np.zeros((3, *policy.observation_shape(11, 11)), np.uint8))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, [[-1, -2, -3, -4]] * 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": "0" * 64}, "sha256"),
        ({"format": 3}, r"format.* 1.* 2.* 3"),
        ({"actions": ["left", "right", "up", "down"]}, "actions"),
        ({"observation": {"name": "unheard"}}, "'unheard'"),
        ({"observation": None}, "observation"),
        ({"board_sizes": []}, "board_sizes"),
        ({"board_sizes": [[11]]}, "board_sizes"),
        ({"board_sizes": "11x11"}, "board_sizes"),
        ({"board_sizes": [[float("inf"), 11]]}, "board_sizes"),
        ({"training": []}, "training must contain"),
        ({"training": {"env_config": None}}, "training must contain"),
        ({"board_sizes": [[7, 7]]}, "'observations'"),
    ],
)
def test_what_does_not_fit_is_refused(
    make_policy: MakePolicy, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(PolicyError, match=words) as refusal:
        OnnxPolicy.load(make_policy(changes=changes))
    assert "policy." in str(refusal.value), "the message names the file"


def test_missing_and_broken_files_are_refused(tmp_path: Path, make_policy: MakePolicy) -> None:
    with pytest.raises(PolicyError, match=r"nothing\.onnx"):
        OnnxPolicy.load(tmp_path / "nothing.onnx")
    path = make_policy()
    path.with_suffix(".json").write_bytes(b"\xff{")
    with pytest.raises(PolicyError, match="not JSON"):
        OnnxPolicy.load(path)
    path.with_suffix(".json").write_text("[]")
    with pytest.raises(PolicyError, match="JSON"):
        OnnxPolicy.load(path)


def test_a_file_that_is_no_network_is_refused(make_policy: MakePolicy) -> None:
    path = make_policy(changes={"sha256": hashlib.sha256(b"not a network").hexdigest()})
    path.write_bytes(b"not a network")
    with pytest.raises(PolicyError, match="onnxruntime"):
        OnnxPolicy.load(path)


HOSTILE = Path(__file__).parents[1] / "data" / "hostile_policies"


def test_a_network_that_loops_when_it_is_loaded_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy_file, "LOAD_TIMEOUT_S", 1.0)
    with pytest.raises(PolicyError, match=r"policy\.onnx.* 1 s"):
        OnnxPolicy.load(HOSTILE / "loop_at_load" / "policy.onnx")


def test_a_network_that_takes_forever_to_load_is_abandoned(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*arguments: object, **options: object) -> None:
        let_go.wait(60)

    let_go, path = threading.Event(), make_policy()
    monkeypatch.setattr(policy_file, "LOAD_TIMEOUT_S", 0.1)
    monkeypatch.setattr("onnxruntime.InferenceSession", hang)
    with pytest.raises(PolicyError, match=r"policy\.onnx.* 0\.1 s"):
        OnnxPolicy.load(path)
    let_go.set()


def test_a_network_that_loops_on_a_board_is_stopped() -> None:
    board = Board.new(11, 11, 2, game=Game(seed=1))
    board.you_id = "snake_0"
    policy = OnnxPolicy.load(HOSTILE / "loop_on_board" / "policy.onnx")
    with pytest.raises(policy_file.PolicyTimeoutError, match=" 1 s"):
        _PolicySnake(policy)(board, 0.2)


def test_running_networks_are_stopped_at_exit() -> None:
    board = Board.new(11, 11, 2, game=Game(seed=1))
    board.you_id = "snake_0"
    policy = OnnxPolicy.load(HOSTILE / "loop_on_board" / "policy.onnx")
    with ThreadPoolExecutor() as pool:
        move = pool.submit(_PolicySnake(policy), board, 60)
        until(lambda: bool(policy_file._watchdog._calls))
        policy_file._watchdog._stop_all()
        with pytest.raises(policy_file.PolicyTimeoutError):
            move.result(timeout=30)
    assert not policy_file._watchdog._calls


def test_a_network_with_values_in_other_files_is_rejected() -> None:
    with pytest.raises(PolicyError, match=r"policy\.onnx"):
        OnnxPolicy.load(HOSTILE / "external_data" / "policy.onnx")


def test_a_deeply_nested_network_is_rejected() -> None:
    from onnx import ModelProto

    model = ModelProto()
    graph = model.graph
    for _ in range(34):
        graph = graph.node.add().attribute.add().g
    data = model.SerializeToString()
    with pytest.raises(PolicyError, match="nested too deeply"):
        policy_file._check_self_contained(data, Path("policy.onnx"))


@pytest.mark.parametrize("place", ["initializer", "constant", "branch", "function", "sparse"])
def test_external_data_is_found_everywhere(place: str) -> None:
    from onnx import TensorProto, helper

    tensor = TensorProto(dims=[1], data_type=1, data_location=TensorProto.EXTERNAL)
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    inner = helper.make_graph([constant], "inner", [], [])
    nodes = {
        "constant": [constant],
        "branch": [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)],
    }
    graph = helper.make_graph(nodes.get(place, []), "outer", [], [])
    model = helper.make_model(graph)
    if place == "initializer":
        model.graph.initializer.append(tensor)
    elif place == "sparse":
        model.graph.sparse_initializer.add().indices.CopyFrom(tensor)
    elif place == "function":
        model.functions.add().node.append(constant)
    with pytest.raises(PolicyError, match="files"):
        policy_file._check_self_contained(model.SerializeToString(), Path("policy.onnx"))


ROOM = """
. . . . .
. . A < .
. . . ^ .
. . . . .
. . . . .
"""
CORNER = """
A < . . .
. ^ . . .
. . . . .
. . . . .
. . . . .
"""


def ask(snake: _PolicySnake, picture: str) -> str:
    board = Board.from_text(picture)
    board.you_id = "a"
    return snake(board).move


def test_the_best_value_wins_among_moves_that_do_not_kill(make_policy: MakePolicy) -> None:
    policy = OnnxPolicy.load(make_policy([-1.0, -2.0, -3.0, -4.0], sizes=[(5, 5)]))
    assert ask(_PolicySnake(policy), ROOM) == "up"
    # Up and left leave the board, and right is the neck: negative values must not make them win.
    assert ask(_PolicySnake(policy), CORNER) == "down"


@pytest.mark.parametrize(
    ("mask", "move"), [("none", "up"), ("fatal", "up"), ("fatal+head", "left"), ("own", "up")]
)
def test_the_action_mask_of_training_applies(
    make_policy: MakePolicy, caplog: pytest.LogCaptureFixture, mask: str, move: str
) -> None:
    changes = {"training": {"env_config": {"action_mask": mask}}}
    path = make_policy([4.0, 3.0, 2.0, 1.0], sizes=[(5, 5)], changes=changes)
    meeting = """
    . B < < .
    . . . . .
    . A . . .
    . ^ . . .
    . . . . .
    """
    assert ask(_PolicySnake(OnnxPolicy.load(path)), meeting) == move
    _PolicySnake(OnnxPolicy.load(path))
    assert caplog.text.count("unknown action mask 'own'") == (mask == "own")
    if mask == "own":
        with pytest.raises(ValueError, match="unknown action mask 'own'"):
            BattlesnakeVectorEnv(1, [str(path)], width=5, height=5)


def test_relative_actions_are_turned_with_the_snake(make_policy: MakePolicy) -> None:
    # In "facing", the network's "up" is straight ahead.
    snake = strategy_factory(make_policy(sizes=[(5, 5)], observation="facing"))(0)
    assert ask(snake, ROOM) == "left"  # type: ignore[arg-type]


POLICY_RULES = """
from battlesnake_heuristics import Filter


@Filter
def never_up(view, move):
    "Never goes up."
    return float(move == "up")


rules = [never_up]
"""


def test_own_rules_speak_over_a_policy(make_policy: MakePolicy, tmp_path: Path) -> None:
    path, file = make_policy(sizes=[(5, 5)]), tmp_path / "my_rules.py"
    file.write_text(POLICY_RULES)
    board = Board.from_text(ROOM)
    board.you_id = "a"
    assert strategy_factory(path)(0)(board).move == "up"
    for factory in (
        strategy_factory(path, rules=file),
        strategy_factory(f"{path}+{file}"),
    ):
        decision = factory(0)(board)
        assert decision.move != "up"
        assert re.match("never_up.* up", decision.reasons[-1].note)
    with pytest.raises(ValueError, match="'hungry'"):
        strategy_factory("hungry", rules=file)
    with pytest.raises(ValueError, match=r"nowhere\.py"):
        strategy_factory(f"{path}+nowhere.py")


def test_a_served_policy_tells_who_decided(
    make_policy: MakePolicy, tmp_path: Path, body: dict[str, Any]
) -> None:
    from battlesnake_server.live.app import create_app

    file = tmp_path / "my_rules.py"
    file.write_text(POLICY_RULES)
    app = create_app({"POLICY": make_policy(), "POLICY_RULES": file, "SEND_DECISIONS": True})
    answer = app.test_client().post("/move", json=body).get_json()
    assert answer["move"] != "up"
    assert answer["decision"]["reasons"][-1]["rule"] == "decided"
