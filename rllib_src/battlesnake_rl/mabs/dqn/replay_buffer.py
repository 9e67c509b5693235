"""Prioritized replay buffer of compact transitions (Schaul et al. 2016), in numpy.

An env runner sends a `Fragment` with rows of uint8 observations (`n_step_transitions`). Each
observation is stored once. A row may also start a transition, whose next state is a later row of
the fragment. `ReplayBuffer` is a ring buffer of rows. A sum tree contains the priorities of the
rows. This module imports neither torch nor RLlib, so the process of a replay buffer shard uses
little memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_rl.mabs.base.fragment import Fragment

ROW_BYTES = 15 + 16
"""Bytes of a row without its observation.

The sum tree needs at least 16 of these bytes per row.
"""

PRIORITY_FLOOR = 1e-3
"""Constant added to every TD error, so that every transition can be sampled again."""

_STATE_KEYS = {"obs": "frames"}
"""Names of columns in a checkpoint that differ from the names of the fragment's columns."""


Batch = tuple[NDArray[np.int64], dict[str, NDArray[Any]]]
"""B sampled transitions: their identifiers, int64 (B,), and their columns, by name.

`ReplayBuffer.update_priorities` needs the identifiers. The columns are:

* ``obs``: uint8 (B, C, H, W), observations.
* ``new_obs``: uint8 (B, C, H, W), observations of the next states; the values are arbitrary for
  terminated transitions.
* ``new_action_mask``: bool (B, 4), action masks of the next states.
* ``actions``: int64 (B,), moves.
* ``rewards``: float32 (B,), discounted sums of rewards.
* ``terminateds``: bool (B,), whether the next state is terminal.
* ``n_step``: float32 (B,), number of steps, which is the exponent of the next state's discount.
* ``weights``: float32 (B,), importance sampling weights, scaled to a maximum of 1.
"""


class _SumTree:
    """Binary tree whose inner nodes contain sums of non-negative values.

    Sampling and updates have time complexity O(log size).

    >>> tree = _SumTree(4)
    >>> tree.set(np.array([0, 2]), np.array([1.0, 3.0]))
    >>> tree.total
    4.0
    >>> tree.find(np.array([0.5, 1.0, 3.9]))
    array([0, 2, 2])
    """

    def __init__(self, size: int) -> None:
        self._depth = max(size - 1, 1).bit_length()
        self._first_leaf = 1 << self._depth
        self._nodes = np.zeros(2 * self._first_leaf)

    @property
    def total(self) -> float:
        """Return the sum of all values."""
        return float(self._nodes[1])

    def get(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the values at ``indices``."""
        return self._nodes[indices + self._first_leaf]

    def set(self, indices: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Set the values at ``indices``; for a repeated index, the last value counts."""
        nodes = indices + self._first_leaf
        self._nodes[nodes] = values
        for _ in range(self._depth):
            nodes = nodes >> 1
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, masses: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index for each cumulative mass in [0, total).

        At the first such index, the cumulative sum exceeds the mass.
        """
        nodes = np.ones(len(masses), dtype=np.int64)
        for _ in range(self._depth):
            left = self._nodes[2 * nodes]
            # Rounding may leave a positive mass although the right subtree is empty; such a subtree
            # must not be entered.
            right = (masses >= left) & (self._nodes[2 * nodes + 1] > 0)
            masses = np.where(right, masses - left, masses)
            nodes = 2 * nodes + right
        return nodes - self._first_leaf


class ReplayBuffer:
    """Ring buffer of ``capacity`` rows; new fragments overwrite the oldest rows.

    The operating system allocates memory as the ring fills. The full buffer needs slightly more
    memory than ``capacity`` observations.

    Args:
        capacity: Maximum number of rows.
        frame_shape: Shape (C, H, W) of an observation.
        alpha: Exponent of the TD error in the priority; 0 samples uniformly.
        beta: Exponent of the importance sampling weights; 1 fully corrects the sampling bias.
        seed: Random seed.
    """

    def __init__(
        self,
        capacity: int,
        frame_shape: tuple[int, ...],
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        seed: int | None = None,
    ) -> None:
        self.capacity = capacity
        self._alpha = alpha
        self._beta = beta
        self._random = np.random.default_rng(seed)
        self._added = 0
        self._frame_shape = tuple(frame_shape)
        # The operating system allocates the pages of these arrays on the first write.
        self._rows: dict[str, NDArray[Any]] = {
            "obs": np.zeros((capacity, *frame_shape), dtype=np.uint8),
            "action_mask": np.zeros((capacity, 4), dtype=np.bool_),
            "next_offset": np.zeros(capacity, dtype=np.int32),
            "actions": np.zeros(capacity, dtype=np.uint8),
            "rewards": np.zeros(capacity, dtype=np.float32),
            "terminateds": np.zeros(capacity, dtype=np.bool_),
            "n_step": np.zeros(capacity, dtype=np.uint8),
        }
        self._priorities = _SumTree(capacity)

    def __len__(self) -> int:
        """Return the number of stored rows."""
        return min(self._added, self.capacity)

    def stats(self) -> dict[str, int]:
        """Return statistics of the buffer, keyed by name.

        The statistics are the number of observations, the number of transitions, and the size of
        the observations in bytes.
        """
        return {
            "num_frames": len(self),
            "num_transitions": int(np.count_nonzero(self._rows["n_step"])),
            "num_bytes": len(self) * math.prod(self._frame_shape),
        }

    def add(self, fragment: Fragment) -> None:
        """Append the rows of a fragment (`TurnBuffer.build_fragment`).

        A transition refers only to a later row, so no stored transition refers to an overwritten
        row.
        """
        columns, count = fragment.columns, len(fragment.columns["obs"])
        if count > self.capacity:
            raise ValueError(
                f"a fragment of {count} rows exceeds the capacity {self.capacity}; raise "
                "the capacity, or lower rollout_fragment_length or the number of games"
            )
        slots = (self._added + np.arange(count)) % self.capacity
        for name, column in self._rows.items():
            column[slots] = columns[name]
        priorities = np.where(
            columns["n_step"] > 0, self._compute_priorities(columns["td_errors"]), 0.0
        )
        self._priorities.set(slots, priorities)
        self._added += count

    def sample(self, batch_size: int) -> Batch:
        """Sample transitions with replacement.

        The probability of a transition is proportional to its priority.

        Raises:
            ValueError: If the buffer contains no transition.
        """
        total = self._priorities.total
        if total <= 0:
            raise ValueError(
                "the replay buffer contains no transition; add fragments before sampling"
            )
        # Stratified sampling has less variance than independent sampling.
        strata = np.arange(batch_size) + self._random.random(batch_size)
        slots = self._priorities.find(strata * (total / batch_size))
        rows = self._rows
        next_slots = (slots + rows["next_offset"][slots]) % self.capacity
        weights = self._priorities.get(slots) ** -self._beta
        newest = self._added - 1
        return newest - (newest - slots) % self.capacity, {
            "obs": rows["obs"].take(slots, axis=0),
            "new_obs": rows["obs"].take(next_slots, axis=0),
            "new_action_mask": rows["action_mask"][next_slots],
            "actions": rows["actions"][slots].astype(np.int64),
            "rewards": rows["rewards"][slots],
            "terminateds": rows["terminateds"][slots],
            "n_step": rows["n_step"][slots].astype(np.float32),
            "weights": (weights / weights.max()).astype(np.float32),
        }

    def update_priorities(self, rows: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        """Set the priorities of sampled transitions, except overwritten transitions.

        The method also ignores rows of a buffer that was lost when its process restarted.
        """
        present = (rows >= self._added - self.capacity) & (rows < self._added)
        self._priorities.set(
            rows[present] % self.capacity, self._compute_priorities(td_errors[present])
        )

    def get_state(self) -> dict[str, Any]:
        """Return all rows and the state of the random generator.

        A buffer restored from this state continues with the same sequence of samples.
        """
        slots = self._stored_indices()
        return {
            "added": self._added,
            "random": self._random.bit_generator.state,
            "priorities": self._priorities.get(slots),
            **{_STATE_KEYS.get(name, name): one[slots] for name, one in self._rows.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state of a buffer with the same observation shape, into an empty buffer.

        A smaller buffer retains the newest rows, whose transitions refer only to later rows.
        """
        rows = len(state["frames"])
        # The ring of another capacity starts again at its first slot.
        is_same = rows == min(state["added"], self.capacity)
        self._added = state["added"] if is_same else min(rows, self.capacity)
        self._random.bit_generator.state = state["random"]
        slots = self._stored_indices()
        newest = slice(rows - len(slots), None)
        for name, column in self._rows.items():
            column[slots] = state[_STATE_KEYS.get(name, name)][newest]
        self._priorities.set(slots, state["priorities"][newest])

    def _stored_indices(self) -> NDArray[np.int64]:
        """Return the indices of the stored rows, int64, oldest first."""
        return np.arange(self._added - len(self), self._added, dtype=np.int64) % self.capacity

    def _compute_priorities(self, td_errors: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the priorities of transitions from their absolute TD errors, float64."""
        # A single priority that is not finite would spread to the sum of all priorities.
        errors = np.nan_to_num(td_errors.astype(np.float64), posinf=0.0)
        return np.asarray((errors + PRIORITY_FLOOR) ** self._alpha)
