"""DQN's env runner, which stores transitions as arrays.

Each turn of all games needs one forward pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.dqn.dqn_learner import QF_PREDS
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns

from battlesnake_rl.mabs.base.batched_env_runner import BatchedEnvRunner
from battlesnake_rl.mabs.dqn.n_step_transitions import TurnBuffer, build_fragment
from battlesnake_rl.mabs.dqn.replay_buffer import Fragment


class DQNEnvRunner(BatchedEnvRunner):
    """Env runner that plays epsilon-greedily and records `Fragment` objects."""

    def _play(self, num_turns: int, epsilon: NDArray[np.float64]) -> Fragment:
        """Play ``num_turns`` turns; game i explores with probability ``epsilon[i]``."""
        assert self.env is not None
        turns = TurnBuffer.allocate(
            num_turns,
            self.env.num_games,
            self.env.num_snakes,
            self.env.single_observation_space.shape,
        )
        for t in range(num_turns):
            self._store_observations(turns, t)
            exploring = self._random.random(turns.actions[t].shape) < epsilon[:, None]
            turns.actions[t] = choose_moves(
                turns.q_values[t], turns.action_mask[t], exploring, self._random
            )
            stepped = self._step(turns.actions[t])
            turns.rewards[t] = stepped.rewards * self.config.reward_scale
            turns.acted[t] = stepped.acted
            turns.terminateds[t] = stepped.terminateds
            turns.truncateds[t] = stepped.truncateds
        self._store_observations(turns, num_turns)
        fragment = build_fragment(turns, n_step=self.config.n_step, gamma=self.config.gamma)
        self._log_steps(fragment)
        return fragment

    def _store_observations(self, turns: TurnBuffer, t: int) -> None:
        """Store the observations, action masks and Q-values of turn ``t``.

        Q-values are computed only for living snakes and for snakes of truncated games.
        """
        frames, action_mask, alive, cut_off = self._position
        turns.obs[t], turns.action_mask[t] = frames, action_mask
        seen = alive | cut_off
        turns.q_values[t][seen] = self._compute_q_values(turns.obs[t][seen])

    def _compute_q_values(self, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the module's Q-values, float32 (B, 4); B may be 0."""
        if not len(frames):
            return np.zeros((0, 4), dtype=np.float32)
        return self.action_scores(self.module[DEFAULT_MODULE_ID], frames)

    @staticmethod
    def action_scores(module: Any, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a module's Q-values as action scores, float32 (B, 4).

        Args:
            module: Module of the policy.
            frames: uint8 (B, C, H, W), observations.
        """
        return q_values(module, frames)

    def _get_epsilons(self) -> NDArray[np.float64]:
        """Return the epsilon of each game, float64 (N,).

        If ``epsilon_per_game`` is None, a schedule over env steps sets one epsilon for all games.
        Otherwise, every game of every env runner has a constant epsilon between ``base``
        and ``base ** (1 + exponent)``.
        """
        assert self.env is not None
        games = self.env.num_games
        if self.config.epsilon_per_game is None:
            schedule = self.config.epsilon
            points = [(0, schedule)] if isinstance(schedule, int | float) else schedule
            steps, values = zip(*points, strict=True)
            return np.full(games, np.interp(self.num_env_steps_sampled_lifetime, steps, values))
        base, exponent = self.config.epsilon_per_game
        runners = max(self.config.num_env_runners, 1)
        rung = np.arange(games) * runners + max(self.worker_index - 1, 0)
        height = rung / max(games * runners - 1, 1)
        return np.asarray(base ** (1 + exponent * height))


def q_values(module: Any, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return a module's Q-values, float32 (B, 4).

    Args:
        module: Module of the policy.
        frames: uint8 (B, C, H, W), observations.
    """
    with torch.inference_mode():
        batch = {Columns.OBS: torch.from_numpy(frames)}
        values: NDArray[np.float32] = module.compute_q_values(batch)[QF_PREDS].numpy()
    return values


def choose_moves(
    q_values: NDArray[np.float32],
    action_mask: NDArray[np.bool_],
    exploring: NDArray[np.bool_],
    random: np.random.Generator,
) -> NDArray[np.uint8]:
    """Return the unmasked move with the highest Q-value, or a random unmasked move.

    Args:
        q_values: float32 (..., 4), Q-values of the moves.
        action_mask: bool (..., 4), unmasked moves; at least one move must be True.
        exploring: bool (...), whether the move is random.
        random: Random generator.

    Returns:
        uint8 (...), moves.
    """
    preference = np.where(exploring[..., None], random.random(q_values.shape), q_values)
    moves: NDArray[np.uint8] = (
        np.where(action_mask, preference, -np.inf).argmax(-1).astype(np.uint8)
    )
    return moves
