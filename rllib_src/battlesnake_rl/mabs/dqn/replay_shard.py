"""Shard of the replay buffer, which runs as a Ray actor.

This module imports neither torch nor RLlib, so the actor uses little memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_rl.mabs.dqn.replay_buffer import Batch, Fragment, ReplayBuffer


class ReplayBufferShard:
    """`ReplayBuffer` whose `sample` returns None while the buffer is empty."""

    def __init__(self, **replay_arguments: Any) -> None:
        self._buffer = ReplayBuffer(**replay_arguments)

    def add(self, fragment: Fragment) -> None:
        """Add a fragment to the replay buffer; see `ReplayBuffer.add`."""
        self._buffer.add(fragment)

    def sample(self, batch_size: int) -> Batch | None:
        """Return a sampled batch, or None while the buffer is empty.

        See `ReplayBuffer.sample`.
        """
        return self._buffer.sample(batch_size) if len(self._buffer) else None

    def update_priorities(self, rows: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        """Set the priorities of transitions; see `ReplayBuffer.update_priorities`."""
        self._buffer.update_priorities(rows, td_errors)

    def stats(self) -> dict[str, int]:
        """Return the replay buffer's statistics; see `ReplayBuffer.stats`."""
        return self._buffer.stats()

    def get_state(self) -> dict[str, Any]:
        """Return the replay buffer's state; see `ReplayBuffer.get_state`."""
        return self._buffer.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the replay buffer's state; see `ReplayBuffer.set_state`."""
        self._buffer.set_state(state)
