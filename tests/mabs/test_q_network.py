"""The Q-network and what it hands to RLlib's loss."""

import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns

from battlesnake_gym.mdp import observations
from battlesnake_gym.rules import Snake, State
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.q_network import (
    POLY_DECAY_ETA,
    TRUNK_DEFAULTS,
    ConvTrunk,
    DuelingQNetwork,
    SnakeQModule,
)

pytestmark = pytest.mark.filterwarnings("default")

SHAPE = (10, 7, 7)


@pytest.fixture(scope="module")
def module() -> Any:
    torch.manual_seed(0)
    built = SnakeQModule(
        observation_space=Box(0, 255, SHAPE, np.uint8),
        action_space=Discrete(4),
        model_config={"bfloat16": False, "head_plane": 6},
    )
    built.make_target_networks()
    return built


def planes(count: int, seed: int = 0) -> Any:
    return torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), dtype=np.uint8)
    )


@pytest.mark.parametrize("side", [1, 3, 7, 11, 19, 21, 25])
def test_any_board_size(side: int) -> None:
    settings: dict[str, Any] = {**TRUNK_DEFAULTS, "head_plane": 6}
    network = DuelingQNetwork((10, side, side), **settings)
    q_values = network(torch.zeros((2, 10, side, side), dtype=torch.uint8))
    assert q_values.shape == (2, 4)
    assert q_values.dtype == torch.float32


@pytest.mark.parametrize(("height", "width"), [(7, 7), (5, 9), (1, 3)])
def test_the_glimpse_is_what_lies_around_the_head(height: int, width: int) -> None:
    trunk = ConvTrunk((3, height, width), (2,), (1,), 4, head_crop=5, head_plane=1)
    boards = np.random.default_rng(1).integers(0, 256, (height * width, 3, height, width), np.uint8)
    boards[:, 1] = np.minimum(boards[:, 1], 224)  # bodies, which the head outshines
    for cell, board in enumerate(boards):
        y, x = divmod(cell, width)
        board[1, y, x] = 255
    _, glimpse = trunk.prepare_input(torch.from_numpy(boards))
    assert glimpse is not None
    seen = glimpse.numpy().reshape(-1, 5, 5, 3)
    padded = np.pad(boards, ((0, 0), (0, 0), (2, 2), (2, 2)))
    for cell, window in enumerate(seen):
        y, x = divmod(cell, width)
        expected = padded[cell, :, y : y + 5, x : x + 5].transpose(1, 2, 0)
        np.testing.assert_array_equal(window, expected / np.float32(255))


def test_gradients_equal_those_of_a_plain_dense_layer() -> None:
    trunk = ConvTrunk((3, 7, 7), (8,), (2,), 4, head_crop=5, head_plane=1)
    boards = np.random.default_rng(1).integers(0, 256, (16, 3, 7, 7), np.uint8)
    scaled, near = trunk.prepare_input(torch.from_numpy(boards))
    assert near is not None
    plain = torch.relu(trunk.dense(torch.cat((trunk.convolutions(scaled), near), dim=1)))
    gradients = [
        torch.autograd.grad(features.square().sum(), list(trunk.parameters()))
        for features in (plain, trunk.features_from(scaled, near))
    ]
    for wanted, found in zip(*gradients, strict=True):
        assert wanted.any()
        torch.testing.assert_close(found, wanted)


def test_the_gradient_of_the_convolutions_keeps_the_order_of_their_channels() -> None:
    trunk = ConvTrunk((3, 7, 7), (8,), (1,), 4, head_crop=0, head_plane=None)
    seen: list[Any] = []
    trunk.convolutions[-2].register_full_backward_hook(lambda _, __, after: seen.extend(after))
    trunk(torch.zeros((5, 3, 7, 7), dtype=torch.uint8)).sum().backward()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_several_networks_over_the_same_boards_say_what_each_says_alone(module: Any) -> None:
    boards = planes(700)
    with torch.no_grad():
        together = module._compute_q_values_of(boards, module.network, module.target_network)
        for network, q_values in zip(
            (module.network, module.target_network), together, strict=True
        ):
            torch.testing.assert_close(q_values, network(boards))


@pytest.mark.parametrize("observation", ["planes", "facing", {"name": "planes", "frame_stack": 2}])
def test_the_head_plane_is_brightest_at_the_own_head(observation: Any) -> None:
    body = [(x if y % 2 else 6 - x, y) for y in range(6) for x in range(7)]
    state = State(turn=3, width=7, height=7, snakes=[Snake("a", body), Snake("b", [(3, 6)])])
    plane = env_options({"observation": observation}).head_plane
    seen = observations.get(observation).encode(state, "a")[plane]
    side = seen.shape[1]
    head = [side // 2, side // 2] if observation == "facing" else [0, 6]
    assert np.argwhere(seen == seen.max()).tolist() == [head]


def test_heads_that_no_plane_tells_apart_have_no_glimpse() -> None:
    assert env_options({"observation": "flat-51s"}).head_plane is None


def test_no_glimpse_without_a_head_plane_and_none_of_even_side() -> None:
    blind = ConvTrunk((10, 7, 7), (8,), (2,), 4, head_crop=7, head_plane=None)
    assert blind.dense.in_features == 8 * 4 * 4
    with pytest.raises(ValueError, match=r"head_crop.* 0.* 4"):
        ConvTrunk((10, 7, 7), (8,), (2,), 4, head_crop=4, head_plane=6)


def test_dueling_heads_leave_the_value_as_mean(module: Any) -> None:
    boards = planes(5)
    q_values = module.network(boards)
    value = module.network.value(module.network.trunk(boards))
    torch.testing.assert_close(q_values.mean(-1, keepdim=True), value)


def test_forbidden_moves_never_reach_the_target(module: Any) -> None:
    mask = torch.rand((64, 4), generator=torch.Generator().manual_seed(1)) < 0.5
    mask[mask.sum(-1) == 0] = True
    batch = {"obs": planes(64), "new_obs": planes(64, 1), "new_action_mask": mask}
    outputs = module.forward_train(batch)
    for key in (QF_NEXT_PREDS, QF_TARGET_NEXT_PREDS):
        assert torch.isneginf(outputs[key][~mask]).all()
        assert torch.isfinite(outputs[key][mask]).all()
        assert not outputs[key].requires_grad
    best = outputs[QF_NEXT_PREDS].argmax(-1)
    assert mask[torch.arange(64), best].all()
    free = module.network(batch["new_obs"]).argmax(-1)
    assert (best != free).any(), "some best moves are forbidden, or this test shows nothing"
    assert outputs[QF_PREDS].requires_grad
    del batch["new_action_mask"]
    assert torch.isfinite(module.forward_train(batch)[QF_NEXT_PREDS]).all()


def test_bfloat16_says_nearly_the_same(module: Any) -> None:
    boards = planes(32)
    with torch.no_grad():
        exact = module.network(boards)
        with torch.autocast("cpu", torch.bfloat16):
            rough = module.network(boards)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.02 * float(exact.abs().max()), rtol=0)


def test_the_mean_of_the_weights_leans_towards_late_ones(module: Any) -> None:
    learner = deepcopy(module)
    drawn = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    for bias in drawn:
        learner.network.advantage.bias.data = torch.from_numpy(bias)
        learner.update_average()
    # In closed form: what was drawn t-th weighs (t + 1) (t + 2) ... (t + RECENT).
    shares = np.array(
        [math.comb(t + POLY_DECAY_ETA, POLY_DECAY_ETA) for t in range(len(drawn))], np.float64
    )
    expected = (shares / shares.sum()) @ drawn
    np.testing.assert_allclose(learner.mean.module.advantage.bias, expected, rtol=1e-4)
    assert int(learner.mean.n_averaged) == len(drawn)
    np.testing.assert_array_equal(learner.network.advantage.bias.detach(), drawn[-1])


def test_runners_get_neither_target_nor_mean(module: Any) -> None:
    names = module.get_state(inference_only=True)
    assert names
    assert all(name.startswith("network.") for name in names)
    for learners_own in ("target_network.", "mean."):
        assert any(name.startswith(learners_own) for name in module.get_state())
    moves = module.forward_inference({"obs": planes(3)})[Columns.ACTIONS]
    assert moves.shape == (3,)
