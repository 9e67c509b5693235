"""One file of somebody's own at every door of the installed wheel."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from battlesnake_gym import own_files
from tests.mabs.test_launcher import SMALL
from tests.mabs.test_own_files import EXPERIMENT, FILE
from tests.wheel.conftest import Environment

pytestmark = pytest.mark.rllib

DOORS = """
import warnings

import gymnasium
import numpy as np
from battlesnake_gym import Board, parallel_env
from battlesnake_gym.rules import Game

warnings.simplefilter("ignore", RuntimeWarning)  # the map is played by the Python rules
GAME = dict(width=5, height=5, map="door-map", observation="door-planes", frames=2,
            rewards={"door-climbed": 1.0, "died": -1.0}, action_mask="forbidden+door-low")
name = "battlesnake_gym:Battlesnake-v0"

assert {(0, 0), (4, 4)} <= set(Board.new(5, 5, 2, game=Game(map="door-map", seed=1)).food)
seen, info = gymnasium.make(name, opponents=["random"], **GAME).reset(seed=1)
assert seen.shape == (4, 5, 5)
game = parallel_env(num_snakes=2, **GAME)
both, _ = game.reset(seed=1)
assert all(one.shape == seen.shape for one in both.values())
envs = gymnasium.make_vec(name, num_envs=4, opponents=["random"], **GAME)
_, infos = envs.reset(seed=1)
climbed = 0.0
for _ in range(20):
    _, reward, *_, infos = envs.step(infos["action_mask"].argmax(axis=1))
    climbed += np.clip(reward, 0, None).sum()
assert climbed > 0
"""


@pytest.fixture
def mine(environment: Environment, tmp_path: Path) -> dict[str, str]:
    """The environment's variables, with the file named in one of them."""
    (tmp_path / "mine.py").write_text(FILE)
    return environment.variables | {own_files.VARIABLE: str(tmp_path / "mine.py")}


def test_the_environments_know_it(
    environment: Environment, mine: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [environment.python, "-c", DOORS], cwd=tmp_path, env=mine, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_commands_train_measure_and_play_with_it(
    environment: Environment, mine: dict[str, str], tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        command = [str(environment.folder / "bin" / "battlesnake-gym"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=mine, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "my-experiment.yaml").write_text(EXPERIMENT)
    run("train", *SMALL[:-4], "--experiment", "my-experiment.yaml", "--network", "mine.py:Net",
        "--algorithm", "mine.py:OwnDQN", "--num-iters", "2")  # fmt: skip
    policy = tmp_path / "runs" / "my-experiment" / "model" / "policy.onnx"
    facts = json.loads(policy.with_suffix(".json").read_text())
    assert facts["observation"]["name"] == "door-planes"
    assert facts["training"]["algorithm"] == "OwnDQN"
    against = ["--opponents", "random", "--games", "2", "--rules", "mine.py", "--json"]
    assert json.loads(run("evaluate", str(policy), *against))["opponents"] == ["random"]
    board = ["--width", "5", "--height", "5", "--map", "door-map", "--max-turns", "20"]
    games = ["--games", "2", "--jobs", "1", "--database", f"sqlite:///{tmp_path}/arena.db"]
    assert "mine.py" in run("arena", f"{policy}+mine.py", "random", *board, *games, "--json")
