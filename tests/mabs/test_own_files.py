"""Networks, algorithms and experiments in files of one's own, and one file at every door."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.mabs.test_launcher import SMALL

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

FILE = """
import dataclasses

import numpy as np
import torch

from battlesnake_gym.see import masks, observations, rewards
from battlesnake_gym.rules import MAPS, register_map
from battlesnake_heuristics import Filter, as_mask
from battlesnake_rl.mabs.dqn.dqn import DQN


def setup(game, state):
    MAPS["standard"].setup(game, state)
    state.food += [cell for cell in [(0, 0), (4, 4)] if cell not in state.food]


register_map(dataclasses.replace(MAPS["standard"], id="door-map", description="", setup=setup))


def encode(state, snake_id):
    planes = np.zeros((2, state.height, state.width), np.uint8)
    for x, y in state.food:
        planes[0, y, x] = 200
    for snake in state.snakes:
        if snake.alive:
            x, y = snake.head
            planes[1, y, x] = 255 if snake.id == snake_id else 99
    return planes


observations.register("door-planes", ["food", "heads"], encode)
rewards.register("door-climbed", lambda turn: (turn.heads - turn.heads_before)[..., 1].clip(0, 1))


@Filter
def low(view, move):
    "Goes up to the two topmost rows."
    target = view.targets[move]
    return float(target is not None and target[1] > view.board.height - 3)


rules = [low]
masks.register("door-low", as_mask(rules))


class Net(torch.nn.Module):
    def __init__(self, shape, actions):
        super().__init__()
        self.line = torch.nn.Linear(int(np.prod(shape)), actions)

    def forward(self, planes):
        return self.line(planes.flatten(1).float() / 255)


class OwnDQN(DQN):
    pass


class Wrong(torch.nn.Module):
    def __init__(self, shape, actions):
        super().__init__()

    def forward(self, planes):
        return planes.float()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, named to every command; what it registers goes again."""
    from battlesnake_gym.common import own_files
    from battlesnake_gym.rules import MAPS
    from battlesnake_gym.see import masks, observations, rewards

    for registry in (MAPS, observations._own, masks._own, rewards.EVENTS):
        for name in ("door-map", "door-planes", "door-climbed", "door-low"):
            monkeypatch.setitem(registry, name, None)
            monkeypatch.delitem(registry, name)
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    monkeypatch.setenv(own_files.VARIABLE, str(path))
    return path


EXPERIMENT = """
map: door-map
observation: door-planes
frames: 2
rewards: {door-climbed: 1.0, died: -1.0}
action_mask: forbidden+door-low
num_agents: 2
map_size: 5
"""


def test_one_file_works_from_training_to_the_arena(
    ray_with_games: None, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from battlesnake_gym import Board
    from battlesnake_gym.rules import Game
    from battlesnake_rl.mabs import evaluate
    from battlesnake_rl.mabs.train import main
    from battlesnake_server.commands import arena_command as command
    from battlesnake_server.live.app import create_app

    experiment = tmp_path / "my-experiment.yaml"
    experiment.write_text(EXPERIMENT)
    small = [*SMALL[:6], *SMALL[6:-4]]  # without the network's settings
    status = main([
        *small, "--experiment", str(experiment), "--network", f"{file}:Net",
        "--algorithm", f"{file}:OwnDQN", "--num-iters", "2", "--runs", str(tmp_path / "runs"),
    ])  # fmt: skip
    assert status == 0
    run = tmp_path / "runs" / "my-experiment"
    policy = run / "model" / "policy.onnx"
    metadata = json.loads(policy.with_suffix(".json").read_text())
    assert metadata["observation"]["name"] == "door-planes"
    assert metadata["observation"]["frames"] == 2
    assert metadata["training"]["algorithm"] == "OwnDQN"
    capsys.readouterr()

    for source in (run, policy):
        against = ["--opponents", "random", "--games", "2", "--json"]
        assert evaluate.main([str(source), *against, "--rules", str(file)]) == 0
        assert json.loads(capsys.readouterr().out)["opponents"] == ["random"]

    board = Board.new(5, 5, 2, game=Game(map="door-map", seed=1, id="one", timeout=60_000))
    assert {(0, 0), (4, 4)} <= set(board.food)
    app = create_app({"POLICY": policy, "RULES": file, "REASONS": True})
    answer = app.test_client().post("/move", json=board.to_api("snake_0")).get_json()
    assert "decision" in answer, answer
    assert answer["decision"]["reasons"][-1]["rule"] == "decided"

    games = ["--games", "2", "--width", "5", "--height", "5", "--map", "door-map", "--jobs", "1"]
    more = ["--max-turns", "20", "--database", f"sqlite:///{tmp_path}/arena.db", "--json"]
    assert command.main([f"{policy}+{file}", "random", *games, *more]) == 0
    assert "mine.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hyperparameter", "rl.training.config.model_config.channels=[16, 32]"],
         "channels and strides must have a number for each convolution"),
        (["--rl.training.config.model_config.width", "-5"], "model_config makes no network"),
        (["--network", "{file}:Wrong"], r"must give \[batch, 4\], got torch.Size"),
        (["--network", "{file}:setup"], "must be a class of torch.nn.Module"),
        (["--network", "{file}:Nett"], "unknown network 'Nett'; did you mean Net"),
        (["--network", "{file}"], "network must be FILE.py:NAME"),
        (["--network", "{file}:Net", "--algorithm", "IMPALA"], "network needs PPO, DQN or APEX"),
        (["--algorithm", "{file}:Net"], "must be a subclass of PPO"),
        (["--algorithm", "DQM"], "did you mean DQN.*or give FILE.py:NAME"),
        (["--experiment", "absent.yaml"], "there is no experiment file absent.yaml"),
        (["--experiment", "{file}.yaml"], "must be a table of hyperparameters"),
        (["--starts", "[[1, 1]]"], "starts has 1 cells for 4 snakes"),
        (["--rewards", '["survival"]'], "1 schemes for 4 seats"),
        (["--frames", "9"], "frames"),
    ],
)  # fmt: skip
def test_the_check_finds_it_before_anything_starts(
    file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    from battlesnake_rl.mabs.train import main

    Path(f"{file}.yaml").write_text("[1, 2]")
    given = [argument.replace("{file}", str(file)) for argument in arguments]
    assert main(["--check", "--num-iters", "1", *given]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_what_is_fine_passes_the_check(file: Path) -> None:
    from battlesnake_rl.mabs.train import main

    seats = ["--num-agents", "2", "--starts", "[[1, 1], [5, 5]]", "--food-at", "[[1, 2], [5, 4]]"]
    rewards = ["--rewards", '["survival", {"won": 1}]', "--frames", "2"]
    for algorithm in ("DQN", f"{file}:OwnDQN"):
        check = ["--check", "--num-iters", "1", "--algorithm", algorithm]
        assert main([*check, *seats, *rewards]) == 0


def test_seats_have_rewards_and_first_cells_of_their_own() -> None:
    from battlesnake_gym import VectorBattlesnake
    from battlesnake_gym.config import EnvConfig

    options: dict[str, Any] = {"num_snakes": 2, "width": 7, "height": 7}
    where: dict[str, Any] = {"starts": [[1, 1], [5, 5]], "food_at": [[1, 2], [5, 4]]}
    rewards = [{"ate_food": 1.0}, {"ate_food": 5.0, "another_turn": 0.5}]
    games = VectorBattlesnake.of(EnvConfig(**options, **where, rewards=rewards), 3)
    games.reset(seed=1)
    assert games.games.heads.tolist() == [[[1, 1], [5, 5]]] * 3
    assert games.games.state(0).food == [(1, 2), (5, 4)]
    _, seen, *_ = games.step(np.array([[0, 1]] * 3))
    np.testing.assert_array_equal(seen, [[1.0, 5.5]] * 3)
    for bad, message in (
        ({"starts": [[9, 1], [2, 2]]}, "off the board of 7x7"),
        ({"food_at": [[1, 1]]}, "food_at needs starts"),
        ({"starts": [[1, 1], [2, 2]], "food_at": [[1, 1]]}, "where a snake begins"),
        ({"starts": [[1, 1], [1, 1]]}, "names a cell twice"),
        ({"starts": 3}, "must be a list of cells"),
    ):
        with pytest.raises(ValueError, match=message):
            VectorBattlesnake.of(EnvConfig(**{**options, **bad}), 1)
