"""Networks, algorithms and experiments in files of one's own, and one file at every door."""

import re
from pathlib import Path

import numpy as np
import pytest

from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import algorithms
from tests.battlesnake_gym.test_extensions import FILE as GAME
from tests.battlesnake_gym.test_extensions import extension as extension
from tests.mabs.conftest import SMALL

pytestmark = pytest.mark.filterwarnings("default")

FILE = (
    GAME
    + """
import torch

from battlesnake_heuristics import Filter
from battlesnake_rl.mabs.dqn.dqn import DQN
from battlesnake_rl.mabs.ppo.rllib_ppo import RLlibPPO


@Filter
def high(view, move):
    "Goes up to the two topmost rows."
    target = view.targets[move]
    return float(target is not None and target[1] > view.board.height - 3)


rules = [high]


class Net(torch.nn.Module):
    def __init__(self, shape, actions):
        super().__init__()
        self.line = torch.nn.Linear(int(np.prod(shape)), actions)

    def forward(self, planes):
        return self.line(planes.flatten(1).float() / 255)


class OwnDQN(DQN):
    pass


class OwnPPO(RLlibPPO):
    pass


class Dropping(Net):
    def forward(self, planes):
        return torch.nn.functional.dropout(super().forward(planes), 0.5, self.training)


class Half(Net):
    def forward(self, planes):
        return super().forward(planes).bfloat16()


class Wrong(torch.nn.Module):
    def __init__(self, shape, actions):
        super().__init__()

    def forward(self, planes):
        return planes.float()
"""
)


@pytest.fixture
def file(extension: Path) -> Path:
    """The file, named to every command; what it registers goes again."""
    extension.write_text(FILE)
    return extension


EXPERIMENT = """
map: corners
observation: heads-and-food
frame_stack: 2
rewards: {climbed: 1.0, died: -1.0}
action_mask: fatal+low
num_snakes: 2
board_size: 5
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hyperparameter", "rl.training.config.model_config.channels=[16, 32]"],
         r"channels.* strides"),
        (["--rl.training.config.model_config.hidden_size", "-5"],
         "model_config"),
        (["--network", "{file}:Wrong"], r"\[batch, 4\].* torch.Size"),
        (["--network", "{file}:Half"], r"float32 \[batch, 4\].* torch.bfloat16"),
        (["--network", "{file}:corners"], r"torch.nn.Module"),
        (["--network", "{file}:Nett"], r"'Nett'.* Net"),
        (["--network", "{file}"], r"network.* FILE.py:NAME"),
        (["--network", "{file}:Net", "--algorithm", "RLLIB_PPO"], r"network.* PPO.* DISTIL"),
        (["--algorithm", "{file}:Net"], "PPO"),
        (["--experiment", "{file}.yaml"], "hyperparameters"),
    ],
)  # fmt: skip
def test_the_check_finds_it_before_anything_starts(
    file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"{file}.yaml").write_text("[1, 2]")
    given = [argument.replace("{file}", str(file)) for argument in arguments]
    assert main(["--dry-run", "--num-iters", "1", "--algorithm", "DQN", *given]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_what_is_fine_passes_the_check(file: Path) -> None:
    seats = ["--num-snakes", "2", "--start-positions", "[[1, 1], [5, 5]]"]
    seats += ["--food-positions", "[[1, 2], [5, 4]]"]
    rewards = ["--rewards", '["survival", {"won": 1}]', "--frame-stack", "2"]
    for algorithm in ("DQN", f"{file}:OwnDQN"):
        check = ["--dry-run", "--num-iters", "1", "--algorithm", algorithm]
        assert main([*check, *seats, *rewards]) == 0


def test_a_subclass_of_rllibs_ppo_has_its_network_and_policies(file: Path) -> None:
    names = (f"{file}:OwnPPO", "RLLIB_PPO")
    own, known = (algorithms.configure(name, SMALL) for name in names)
    assert own.model_config == known.model_config
    assert own.policies.keys() == known.policies.keys()


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_a_network_plays_without_dropout(ray_with_games: None, file: Path, name: str) -> None:
    config = algorithms.configure(name, SMALL)
    algorithms.use_custom_network(config, f"{file}:Dropping")
    runner = config.env_runner_cls(config=config, worker_index=0)
    module = runner.module["default_policy"]
    frames = np.full((2, *runner.env.single_observation_space.shape), 255, np.uint8)
    for scores in (runner.action_scores(module, frames), runner.score_fn(module)(frames)):
        assert (scores != 0).all()
        np.testing.assert_array_equal(scores[0], scores[1])
