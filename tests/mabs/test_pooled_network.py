"""A network whose answer is the board's alone, not that of the array around it."""

# ruff: noqa: E402
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra rllib")
pytestmark = pytest.mark.rllib

from battlesnake_gym import VectorBattlesnake
from battlesnake_rl.mabs.policy.pooled_network import PooledNetwork, around


@pytest.mark.parametrize("side", [7, 11])
def test_a_board_means_the_same_in_any_array(side: int) -> None:
    torch.manual_seed(1)
    network = PooledNetwork(16).eval()
    games = VectorBattlesnake(8, 3, side, side, observation="reach")
    frames, infos = games.reset(seed=2)
    for _ in range(6):
        frames, *_, infos = games.step(infos["action_mask"].argmax(-1))
    small = frames[infos["alive"]]
    margin = (19 - side) // 2
    large = np.pad(small, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    constant = [3, 4, 5]  # turn, health and length are shown outside of the board, too
    large[:, constant] = small[:, constant, :1, :1]
    with torch.no_grad():
        there, here = network(torch.from_numpy(large)), network(torch.from_numpy(small))
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)
    assert here.std() > 0


def test_around_takes_the_cells_around_a_head_and_zeros_beyond() -> None:
    planes = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).float()
    rows, columns = torch.tensor([0, 2]), torch.tensor([4, 1])
    seen = around(planes, rows, columns, 3).reshape(2, 3, 3, 3)  # rows, columns, channels
    assert seen[0, 1, 1].tolist() == planes[0, :, 0, 4].tolist()
    assert not seen[0, 0].any()
    assert not seen[0, :, 2].any()
    torch.testing.assert_close(seen[1], planes[1, :, 1:4, 0:3].permute(1, 2, 0))
