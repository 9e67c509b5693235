"""A part of a replay as a Ray actor of its own. Imports neither torch nor RLlib: it stays small."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_rl.mabs.dqn.replay_buffer import Batch, Fragment, ReplayBuffer


class ReplayBufferShard:
    """A `ReplayBuffer` that answers None instead of failing while it is empty."""

    def __init__(self, **replay_arguments: Any) -> None:
        self._buffer = ReplayBuffer(**replay_arguments)

    def add(self, fragment: Fragment) -> None:
        """See `ReplayBuffer.add`."""
        self._buffer.add(fragment)

    def sample(self, batch_size: int) -> Batch | None:
        """See `ReplayBuffer.sample`; None while nothing is there."""
        return self._buffer.sample(batch_size) if len(self._buffer) else None

    def update_priorities(self, rows: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        """See `ReplayBuffer.update_priorities`."""
        self._buffer.update_priorities(rows, td_errors)

    def stats(self) -> dict[str, int]:
        """How full the shard is."""
        return self._buffer.stats()

    def get_state(self) -> dict[str, Any]:
        """See `ReplayBuffer.get_state`."""
        return self._buffer.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """See `ReplayBuffer.set_state`."""
        self._buffer.set_state(state)
