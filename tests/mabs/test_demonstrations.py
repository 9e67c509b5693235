"""The search's games in the replay, and the margin that they are learned with."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs the extra rllib")
pytest.importorskip("battlesnake_heuristics.search._search")

import torch

from battlesnake_rl.mabs.dqn import demonstrations
from battlesnake_rl.mabs.dqn.demonstrations import Demonstrations
from battlesnake_rl.mabs.dqn.learner import margin_loss
from battlesnake_rl.mabs.play.environment import DEFAULTS
from tests.algorithms import built, noted_batches

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

GAMES = DEFAULTS | {"num_snakes": 2, "width": 7, "height": 7, "rewards": {"won": 1, "died": -1}}


@pytest.fixture(scope="module")
def replay() -> Any:
    wanted = Demonstrations(moves=1500, positions=20)
    return demonstrations.play(wanted, GAMES, n_step=3, gamma=0.99, reward_scale=1.0, seed=3)


def test_there_are_so_many_moves_and_they_are_the_searchs(replay: Any) -> None:
    assert replay.results()["num_transitions"] >= 1500
    batch = replay.sample(400)
    # Who searches does not walk into walls: games are long.
    assert batch.terminateds.mean() < 0.2
    assert set(np.unique(batch.rewards)) <= {np.float32(r * 0.99**k) for r in (-1, 0, 1)
                                             for k in range(3)}  # fmt: skip
    assert {0.0} < set(batch.rewards.tolist())


def test_the_same_seed_plays_the_same(replay: Any) -> None:
    wanted = Demonstrations(moves=1500, positions=20)
    again = demonstrations.play(wanted, GAMES, n_step=3, gamma=0.99, reward_scale=1.0, seed=3)
    np.testing.assert_array_equal(again.get_state()["actions"], replay.get_state()["actions"])


def test_the_margin_loss_is_zero_where_the_experts_move_is_ahead() -> None:
    q_values = torch.tensor([[1.0, 0.5, 0.0, 0.2], [1.0, 0.95, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0]])
    moves = torch.tensor([0, 0, 0])
    loss = margin_loss(q_values, moves, torch.tensor([True, True, False]), 0.1)
    assert float(loss) == pytest.approx((0 + 0.05) / 2)
    assert float(margin_loss(q_values, moves, torch.tensor([False] * 3), 0.1)) == 0


def test_dqn_learns_from_them_beside_its_own(small_config: Any) -> None:
    wanted = {"moves": 200, "positions": 5, "share": 0.25, "weight": 2.0}
    config = small_config("DQN").training(demonstrations=wanted, symmetries=True)
    config.validate()
    with built(config) as algorithm:
        seen = noted_batches(algorithm)
        results = algorithm.train()
        batch = seen[-1]
        assert len(batch["actions"]) == 43  # 32 of its own and a third of that
        assert batch["demonstrated"].sum() == 11
        assert batch["demonstrated"][-11:].all()
        assert np.isfinite(results["learners"]["default_policy"]["qf_loss"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"demonstrations": {"share": 1.0}}, "share must be between 0 and 1"),
        ({"demonstrations": {"positions": 0}}, "positions at least 1"),
        ({"demonstrations": {"mooves": 1}}, "unknown demonstrations"),
    ],
)
def test_impossible_demonstrations_are_refused(
    small_config: Any, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        small_config("DQN").training(**settings).validate()


@pytest.mark.parametrize("games", [{"width": 7}, {"observation": "facing"}])
def test_boards_that_cannot_be_turned_are_refused(small_config: Any, games: Any) -> None:
    with pytest.raises(ValueError, match="symmetries needs square boards"):
        small_config("DQN", **games).training(symmetries=True).validate()
