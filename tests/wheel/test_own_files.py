"""One file of somebody's own at every door of the installed wheel."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common import extensions
from battlesnake_gym.rules import Game
from tests.mabs.test_extensions_in_training import EXPERIMENT, FILE
from tests.mabs.test_launcher import SMALL
from tests.processes import fetch, fetch_json, free_port, run, running, wait_for
from tests.wheel.conftest import Environment

DOORS = """
import warnings

import gymnasium
import numpy as np
from battlesnake_gym import Board, parallel_env
from battlesnake_gym.rules import Game

warnings.simplefilter("ignore", RuntimeWarning)  # the map is played by the Python rules
GAME = dict(width=5, height=5, map="corners", observation="heads-and-food", frame_stack=2,
            rewards={"climbed": 1.0, "died": -1.0}, action_mask="fatal+low")
name = "battlesnake_gym:Battlesnake-v0"

assert {(0, 0), (4, 4)} <= set(Board.new(5, 5, 2, game=Game(map="corners", seed=1)).food)
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


@dataclass(frozen=True)
class Workplace:
    """A folder with the file, in which the wheel's commands run; a variable names it to them."""

    environment: Environment
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        named = {
            extensions.EXTENSIONS_VARIABLE: str(self.folder / "mine.py"),
            "PYTHONUNBUFFERED": "1",
        }
        return self.environment.variables | named

    def run(self, *words: str | Path) -> str:
        """What a command prints."""
        done = run(*words, cwd=self.folder, env=self.variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command for as long as the block lasts; what it says comes together."""
        pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        where: dict[str, Any] = {"cwd": self.folder, "env": self.variables}
        with running("battlesnake-gym", *words, **pipes, **where) as process:
            yield process
            process.send_signal(signal.SIGINT)
            process.wait(120)


@pytest.fixture(scope="module")
def mine(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(FILE)
    (folder / "my-experiment.yaml").write_text(EXPERIMENT)
    return Workplace(environment, folder)


def test_the_environments_know_it(mine: Workplace) -> None:
    mine.run(mine.environment.python, "-c", DOORS)


@pytest.fixture(scope="module")
def policy(mine: Workplace) -> str:
    """What was trained with all that the file has."""
    mine.run("battlesnake-gym", "train", *SMALL[:-4], "--experiment", "my-experiment.yaml",
             "--network", "mine.py:Net", "--algorithm", "mine.py:OwnDQN",
             "--num-iters", "2")  # fmt: skip
    return "runs/my-experiment/model/policy.onnx"


BOARD = ["--board-size", "5", "--map", "corners", "--max-turns", "20"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_commands_train_measure_and_play_with_it(mine: Workplace, policy: str) -> None:
    facts = json.loads((mine.folder / policy).with_suffix(".json").read_text())
    assert facts["observation"]["name"] == "heads-and-food"
    assert facts["observation"]["frame_stack"] == 2
    assert facts["training"]["algorithm"] == "OwnDQN"
    against = ["--opponents", "random", "--games", "2", "--policy-rules", "mine.py", "--json"]
    for source in (policy, "runs/my-experiment"):
        told = mine.run("battlesnake-gym", "evaluate", source, *against)
        assert json.loads(told)["opponents"] == ["random"]
    games = ["--games", "2", "--jobs", "1", "--database", "sqlite:///arena.db", "--json"]
    assert "mine.py" in mine.run(
        "battlesnake-gym", "arena", f"{policy}+mine.py", "random", *BOARD, *games
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_plays_over_a_socket_and_appears_on_the_pages(mine: Workplace, policy: str) -> None:
    port = free_port()
    snake = f"http://127.0.0.1:{port}"
    serve = ["serve", "--policy", policy, "--policy-rules", "mine.py", "--send-decisions"]
    serve += ["--port", str(port)]
    arena = ["arena", f"door={snake}", "random", *BOARD, "--games", "2", "--jobs", "1",
             "--timeout", "5000", "--database", "sqlite:///pages.db", "--web",
             "--port", "0"]  # fmt: skip
    with mine.running(*serve) as server:
        wait_for(snake, server)
        board = Board.new(5, 5, 2, game=Game(seed=1, id="one", timeout=60_000))
        answer = fetch_json(f"{snake}/move", board.to_api("snake_0"))
        assert answer["move"] in board.safe_moves("snake_0")
        assert answer["decision"]["reasons"][-1]["rule"] == "decided"
        with mine.running(*arena) as pages:
            address = read_until(pages, " at http://").split(" at ")[1].split()[0]
            read_until(pages, "door ")  # the table, once all was played
            assert {one["snake"] for one in fetch_json(f"{address}leaderboard.json")} == {
                "door", "random",
            }  # fmt: skip
            assert 'value="corners"' in fetch(f"{address}play")
            assert fetch(f"{address}games").count('<a class="game"') == 2
            wish = {"snakes": ["random"], "map": "corners", "width": 5, "height": 5, "seed": 3}
            game = fetch_json(f"{address}play", wish)["game"]
            first = fetch_json(f"{address}game/{game}/data")["frames"][0]
            assert {(0, 0), (4, 4)} <= {tuple(cell) for cell in first["food"]}
            for replay in (mine.folder / "replays").glob("*.jsonl*"):
                first = fetch_json(f"{address}replays/data/{replay.name}")["frames"][0]
                assert {(0, 0), (4, 4)} <= {tuple(cell) for cell in first["food"]}
                assert f'href="../replays/replay/{replay.name}"' in fetch(f"{address}replays/")


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """The next line that has these words in it."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return line
    raise AssertionError(said)
