"""N-step transitions from a block of consecutive turns, computed on whole arrays.

Axes: ``T`` turns, ``N`` games, ``S`` seats, ``C`` planes, ``H`` rows, ``W`` columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_rl.mabs.base.fragment import Fragment


@dataclass(slots=True)
class TurnBuffer:
    """Block of T turns of N games with S seats, and the position after the last turn.

    `allocate` returns a block of zeros, which an env runner fills turn by turn.
    """

    obs: NDArray[np.uint8]
    """uint8 (T + 1, N, S, C, H, W), observations."""
    action_mask: NDArray[np.bool_]
    """bool (T + 1, N, S, 4), action masks."""
    q_values: NDArray[np.float32]
    """float32 (T + 1, N, S, 4), Q-values of the network that selected the moves."""
    actions: NDArray[np.uint8]
    """uint8 (T, N, S), moves."""
    rewards: NDArray[np.float32]
    """float32 (T, N, S), rewards multiplied by ``reward_scale``."""
    acted: NDArray[np.bool_]
    """bool (T, N, S), whether the seat's snake moved."""
    terminateds: NDArray[np.bool_]
    """bool (T, N, S), whether the snake was eliminated or won in this turn."""
    truncateds: NDArray[np.bool_]
    """bool (T, N, S), whether the game was truncated in this turn."""

    @classmethod
    def allocate(cls, turns: int, games: int, seats: int, frame: tuple[int, ...]) -> TurnBuffer:
        """Return a block of zeros.

        Args:
            turns: Number of turns T.
            games: Number of games N.
            seats: Number of seats S.
            frame: Shape (C, H, W) of an observation.
        """
        now, upto = (turns, games, seats), (turns + 1, games, seats)
        return cls(
            obs=np.zeros((*upto, *frame), dtype=np.uint8),
            action_mask=np.zeros((*upto, 4), dtype=np.bool_),
            q_values=np.zeros((*upto, 4), dtype=np.float32),
            actions=np.zeros(now, dtype=np.uint8),
            rewards=np.zeros(now, dtype=np.float32),
            acted=np.zeros(now, dtype=np.bool_),
            terminateds=np.zeros(now, dtype=np.bool_),
            truncateds=np.zeros(now, dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.actions)

    def n_step_returns(
        self, n_step: int, gamma: float
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
        """Compute n-step returns for every turn of the block.

        A return has fewer than ``n_step`` steps if the snake's game or the block ends earlier. If
        the block ends earlier, the next state is the last position of the block.

        Args:
            n_step: Maximum number of steps of a return.
            gamma: Discount factor in [0, 1].

        Returns:
            Three arrays (T, N, S): discounted rewards (float32), numbers of steps (int64), and
            termination flags (bool). A flag is True if the snake's game terminated within these
            steps.
        """
        length = len(self)
        ended = self.terminateds | self.truncateds
        returns = np.zeros(self.rewards.shape, dtype=np.float32)
        steps = np.zeros(self.rewards.shape, dtype=np.int64)
        terminateds = np.zeros(self.rewards.shape, dtype=np.bool_)
        running = self.acted.copy()
        for k in range(min(n_step, length)):
            begin, now = slice(0, length - k), slice(k, length)
            returns[begin] += np.float32(gamma**k) * self.rewards[now] * running[begin]
            steps[begin] += running[begin]
            terminateds[begin] |= running[begin] & self.terminateds[now]
            running[begin] &= ~ended[now]
        return returns, steps, terminateds

    def build_fragment(self, *, n_step: int, gamma: float) -> Fragment:
        """Build a fragment from the block.

        The fragment contains every needed observation once. If ``n_step[i] > 0``, row ``i`` starts
        a transition, whose next state is ``next_offset[i]`` rows later. A terminated transition has
        no next state and has offset 0.

        Returns:
            Fragment with F rows and these columns:

            * ``obs``: uint8 (F, C, H, W), observations.
            * ``action_mask``: bool (F, 4), action masks.
            * ``next_offset``: int32 (F,), rows between a row and the next state of its transition.
            * ``actions``: uint8 (F,), moves.
            * ``rewards``: float32 (F,), discounted sum of the transition's rewards.
            * ``terminateds``: bool (F,), whether the snake was eliminated or won within the
              transition.
            * ``n_step``: uint8 (F,), number of steps of the transition; 0 for no transition.
            * ``td_errors``: float32 (F,), absolute TD errors, which determine the initial
              priorities. The errors use the Q-values of the network that selected the moves.
        """
        returns, steps, terminateds = self.n_step_returns(n_step, gamma)
        start = np.nonzero(self.acted)
        end = (start[0] + steps[start], start[1], start[2])
        final = terminateds[start]

        needed = np.zeros(self.obs.shape[:3], dtype=np.bool_)
        needed[start] = True
        needed[tuple(axis[~final] for axis in end)] = True
        row = (np.cumsum(needed) - 1).reshape(needed.shape)
        begin = row[start]

        best_next = np.where(self.action_mask[end], self.q_values[end], -np.inf).max(-1)
        target = returns[start] + np.where(final, 0.0, gamma ** steps[start] * best_next)
        q_played = self.q_values[start][np.arange(len(begin)), self.actions[start]]

        def scatter_to_rows(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
            """Return a column with ``values`` in the rows that start a transition, else 0."""
            column: NDArray[Any] = np.zeros(int(needed.sum()), dtype=dtype)
            column[begin] = values
            return column

        columns = {
            "obs": self.obs[needed],
            "action_mask": self.action_mask[needed],
            "next_offset": scatter_to_rows(np.where(final, 0, row[end] - begin), np.int32),
            "actions": scatter_to_rows(self.actions[start], np.uint8),
            "rewards": scatter_to_rows(returns[start], np.float32),
            "terminateds": scatter_to_rows(final, np.bool_),
            "n_step": scatter_to_rows(steps[start], np.uint8),
            "td_errors": scatter_to_rows(np.abs(target - q_played), np.float32),
        }
        return Fragment(columns, int(self.acted.any(-1).sum()), len(begin))
