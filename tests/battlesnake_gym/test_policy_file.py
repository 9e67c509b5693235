"""Policies that version 0.1 wrote are read under the current names."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import Board, policy_file, snakes
from battlesnake_gym.common import old_runs
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.mdp import masks, observations
from battlesnake_gym.rules import MOVES, Game, start
from tests.processes import run

FORMAT_1 = Path(__file__).parents[1] / "data" / "formats" / "policy_1" / "policy.onnx"


def test_format_1_is_read_under_the_current_names() -> None:
    _, metadata = policy_file.read(FORMAT_1)
    assert observations.get(metadata["observation"]).to_dict() == {
        "name": "territory",
        "frame_stack": 1,
        "planes": list(observations.get("territory").planes),
    }
    env_config = metadata["training"]["env_config"]
    assert masks.check_kind(env_config["action_mask"]) == "fatal+head"
    names = set(EnvConfig.__dataclass_fields__)
    config = EnvConfig(**{name: value for name, value in env_config.items() if name in names})
    assert (config.food_rng, config.start_positions, config.food_positions) == ("fast", None, None)
    assert config.observation_encoder == observations.Observation("territory", 1)
    assert set(env_config) - names == {
        "curriculum", "iterate_map_size", "clip_rewards", "opponents",
    }  # fmt: skip


def test_a_policy_of_format_1_plays() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra server")
    game = Game(seed=1)
    board = Board.from_state(start(game, 7, 7, ["a", "b"]), game)
    board.you_id = "a"
    assert snakes.make(str(FORMAT_1))(board).move in MOVES


def test_written_again_it_has_the_current_format(tmp_path: Path) -> None:
    copy = tmp_path / "policy.onnx"
    model, metadata = policy_file.read(FORMAT_1)

    def write(part: Path) -> dict[str, Any]:
        part.write_bytes(model)
        return {"observation": metadata["observation"]}

    policy_file.save(copy, write)
    written = json.loads(copy.with_suffix(".json").read_text())
    assert (written["format"], written["observation"]) == (2, metadata["observation"])
    assert policy_file.read(copy)[1] == written


KILLED_WRITER = """
import os, sys
from pathlib import Path
from battlesnake_gym import policy_file
_, path, model, note, renames = sys.argv
left, replace = int(renames), Path.replace
def counted(self, target):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    return replace(self, target)
Path.replace = counted
def write(part):
    part.write_bytes(Path(model).read_bytes())
    return {"note": note}
policy_file.save(Path(path), write)
"""


def test_a_kill_between_the_two_files_leaves_the_old_or_the_new_pair(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra rllib")
    other = onnx.load(str(FORMAT_1))
    other.doc_string = "another network"
    onnx.save(other, str(tmp_path / "other.onnx"))
    path, found = tmp_path / "model" / "policy.onnx", []
    run(sys.executable, "-c", KILLED_WRITER, path, FORMAT_1, "old", 9, check=True)
    for renames in range(5):
        words = KILLED_WRITER, path, tmp_path / "other.onnx", "new", renames
        done = run(sys.executable, "-c", *words)
        model, metadata = policy_file.read(path)
        assert (metadata["note"] == "new") == (model == (tmp_path / "other.onnx").read_bytes())
        found.append((done.returncode, metadata["note"]))
        run(sys.executable, "-c", KILLED_WRITER, path, FORMAT_1, "old", 9, check=True)
        assert sorted(path.name for path in path.parent.iterdir()) == ["policy.json", "policy.onnx"]
    assert found == [*[(9, "old")] * 3, (9, "new"), (0, "new")]


def test_an_interrupted_save_is_finished_before_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    run(sys.executable, "-c", KILLED_WRITER, path, FORMAT_1, "first", 2)
    assert not path.with_suffix(".json").exists()
    run(sys.executable, "-c", KILLED_WRITER, path, FORMAT_1, "second", 1)
    assert policy_file.read(path)[1]["note"] == "first"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"food": "seeded"}, {"food_rng": "official"}),
        (
            {"starts": [[1, 1]], "food_at": None},
            {"start_positions": [[1, 1]], "food_positions": None},
        ),
        ({"observation": "reach", "frames": 2}, {"observation": "territory", "frame_stack": 2}),
        ({"observation": {"name": "centred"}}, {"observation": {"name": "centered"}}),
        ({"action_mask": "forbidden+head+mine"}, {"action_mask": "fatal+head+mine"}),
        ({"observation": 3, "action_mask": None}, {"observation": 3, "action_mask": None}),
    ],
)
def test_stored_options_are_converted(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert old_runs.convert_env_config(old) == new
    assert old_runs.convert_env_config(new) == new
