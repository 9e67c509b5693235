"""n-step transitions against a walk through each snake's life, one step at a time."""

import numpy as np
import pytest

from battlesnake_rl.mabs.dqn.n_step_transitions import TurnBuffer
from battlesnake_rl.mabs.envs.env_factory import make_vector_env

GAMMA = 0.9


def play(turns: int, games: int, seed: int, **env_config: object) -> TurnBuffer:
    """Random play on the real games, with made-up Q-values."""
    random = np.random.default_rng(seed)
    vector = make_vector_env(games, env_config)
    block = TurnBuffer.allocate(
        turns, games, vector.num_snakes, vector.single_observation_space.shape
    )
    frames, infos = vector.reset(seed=seed)
    for t in range(turns + 1):
        block.obs[t], block.action_mask[t] = frames, infos["action_mask"]
        block.q_values[t] = random.normal(size=block.q_values[t].shape)
        if t == turns:
            return block
        scores = np.where(infos["action_mask"], random.random(block.q_values[t].shape), -1)
        block.actions[t] = scores.argmax(-1)
        frames, rewards, terminations, truncations, infos = vector.step(block.actions[t])
        block.rewards[t] = rewards
        block.acted[t] = infos["acted"]
        block.terminateds[t], block.truncateds[t] = terminations, truncations
    raise AssertionError


@pytest.mark.parametrize("n_step", [1, 3, 40])
@pytest.mark.parametrize("max_turns", [None, 7])
def test_fragment_equals_a_walk_step_by_step(n_step: int, max_turns: int | None) -> None:
    turns = play(30, 5, seed=n_step, num_snakes=3, width=5, height=5, max_turns=max_turns)
    fragment = turns.build_fragment(n_step=n_step, gamma=GAMMA)
    assert turns.terminateds.any()
    assert bool(turns.truncateds.any()) == (max_turns is not None)

    rows = fragment.columns
    starts = np.flatnonzero(rows["n_step"])
    assert len(starts) == fragment.num_agent_steps == turns.acted.sum()
    for row, (t, game, seat) in zip(starts, np.argwhere(turns.acted), strict=True):
        total, steps, dead = 0.0, 0, False
        while steps < n_step and t + steps < len(turns):
            now = t + steps, game, seat
            assert turns.acted[now]
            total += GAMMA**steps * turns.rewards[now]
            steps += 1
            dead = bool(turns.terminateds[now])
            if dead or turns.truncateds[now]:
                break
        end = t + steps, game, seat
        assert rows["n_step"][row] == steps
        assert rows["terminateds"][row] == dead
        assert rows["rewards"][row] == pytest.approx(total, rel=1e-5)
        assert rows["actions"][row] == turns.actions[t, game, seat]
        np.testing.assert_array_equal(rows["obs"][row], turns.obs[t, game, seat])
        target = total
        if not dead:
            next_row = row + rows["next_offset"][row]
            np.testing.assert_array_equal(rows["obs"][next_row], turns.obs[end])
            np.testing.assert_array_equal(rows["action_mask"][next_row], turns.action_mask[end])
            target += GAMMA**steps * turns.q_values[end][turns.action_mask[end]].max()
        played = turns.q_values[t, game, seat, turns.actions[t, game, seat]]
        assert rows["td_errors"][row] == pytest.approx(abs(target - played), rel=1e-4)


def test_no_frame_stands_twice() -> None:
    turns = play(20, 4, seed=5, num_snakes=2, width=7, height=7)
    fragment = turns.build_fragment(n_step=3, gamma=GAMMA)
    ends = (~turns.acted[-1] | turns.terminateds[-1]).sum()
    # One for each move, and the last position of those that still live.
    assert len(fragment.columns["obs"]) == turns.acted.sum() + turns.acted[-1].size - ends
    assert fragment.num_env_steps == turns.acted.any(-1).sum()
