"""n-step transitions against a walk through each snake's life, one step at a time."""

import numpy as np

from battlesnake_rl.mabs.dqn.n_step_transitions import TurnBuffer, build_fragment
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


def test_no_frame_stands_twice() -> None:
    turns = play(20, 4, seed=5, num_snakes=2, width=7, height=7)
    fragment = build_fragment(turns, n_step=3, gamma=GAMMA)
    ends = (~turns.acted[-1] | turns.terminateds[-1]).sum()
    # One for each move, and the last position of those that still live.
    assert len(fragment.columns["obs"]) == turns.acted.sum() + turns.acted[-1].size - ends
    assert fragment.num_env_steps == turns.acted.any(-1).sum()
