"""A board that lies in another way: the same game, the same moves."""

from typing import Any

import numpy as np
import pytest

from battlesnake_gym.rules import MOVES
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.training_env_config import ENV_CONFIG_DEFAULTS
from battlesnake_rl.mabs.policy import symmetry_transforms

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("way", range(symmetry_transforms.NUM_SYMMETRIES))
def test_to_turn_and_to_move_is_to_move_and_to_turn(way: int) -> None:
    """Heads of snakes that go on, seen in another way, go where the turned move says."""
    vector = make_vector_env(40, ENV_CONFIG_DEFAULTS | {"num_snakes": 2})
    frames, infos = vector.reset(seed=5)
    before, mask = frames.copy(), infos["action_mask"].copy()
    actions = np.random.default_rng(1).integers(4, size=(40, 2)).astype(np.uint8)
    after, _, _, _, infos = vector.step(actions)
    alive = infos["alive"]
    own = vector.observation.planes.index("own_body")
    columns: dict[str, Any] = {
        "obs": before[alive], "new_obs": after[alive], "actions": actions[alive].astype(np.int64),
        "new_action_mask": mask[alive], "rewards": np.zeros(alive.sum()),
    }  # fmt: skip
    turned = symmetry_transforms.transform_batch(
        columns, way, ["new_action_mask"], vector.observation
    )
    steps = {"up": (1, 0), "down": (-1, 0), "left": (0, -1), "right": (0, 1)}
    for seen, then, action in zip(
        turned["obs"][:, own], turned["new_obs"][:, own], turned["actions"], strict=True
    ):
        head, next_head = (np.argwhere(plane == 255)[0] for plane in (seen, then))
        np.testing.assert_array_equal(next_head - head, steps[MOVES[action]])
    # What was allowed still is, by its new name.
    for then, allowed, action in zip(
        mask[alive], turned["new_action_mask"], range(10**6), strict=False
    ):
        move = action % 4
        assert then[move] == allowed[symmetry_transforms.ACTION_MAP[way, move]]


def test_there_are_eight() -> None:
    board = np.arange(9).reshape(3, 3)
    ways = {
        symmetry_transforms._transform_boards(board, way).tobytes()
        for way in range(symmetry_transforms.NUM_SYMMETRIES)
    }
    assert len(ways) == symmetry_transforms.NUM_SYMMETRIES
    assert (
        len({tuple(row) for row in symmetry_transforms.ACTION_MAP})
        == symmetry_transforms.NUM_SYMMETRIES
    )


@pytest.mark.parametrize("way", range(symmetry_transforms.NUM_SYMMETRIES))
def test_planes_about_moves_are_about_the_turned_moves(way: int) -> None:
    """Cells that one moves to at first are the head's neighbours in that direction."""
    vector = make_vector_env(
        20,
        ENV_CONFIG_DEFAULTS
        | {"num_snakes": 2, "observation": {"name": "territory", "frame_stack": 2}},
    )
    frames, _ = vector.reset(seed=5)
    for _ in range(6):
        frames, *_ = vector.step(np.full((20, 2), 3, np.uint8))
    turned = symmetry_transforms.transform_observations(frames, way, vector.observation)
    steps = {"up": (1, 0), "down": (-1, 0), "left": (0, -1), "right": (0, 1)}
    names = list(vector.observation.planes)
    found = 0
    for seen in turned.reshape(-1, *turned.shape[2:]):
        for begin in (0, len(names)):
            head = np.argwhere(seen[begin + names.index("own_body")] == 255)
            for move, step in steps.items():
                first = np.argwhere(seen[begin + names.index(f"{move}_territory")] == 255)
                if len(head) and len(first):
                    np.testing.assert_array_equal(first[0] - head[0], step)
                    found += 1
    assert found > 50
