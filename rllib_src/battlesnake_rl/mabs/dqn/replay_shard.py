"""Replay buffer in several Ray actors.

This module imports neither torch nor RLlib, so the actors use little memory.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayActorError

from battlesnake_rl.mabs.dqn.replay_buffer import Batch, ReplayBuffer
from sagemaker_rl.runs.checkpoints import CheckpointError

_NUM_PREFETCHED_BATCHES = 2
"""Number of batches requested from each shard in advance."""


class _ReplayBufferShard(ReplayBuffer):
    """`ReplayBuffer` from which an actor samples; `try_sample` returns None if it is empty."""

    def try_sample(self, batch_size: int) -> Batch | None:
        """Return a sampled batch, or None while the buffer is empty."""
        return self.sample(batch_size) if len(self) else None


class ShardedReplayBuffer:
    """Replay buffer whose shards are actors; fragments go to the shards in turn.

    Shards sample batches before the learner needs the batches. All shards run on this machine,
    because the learner reads several batches per fragment. The shards need no second machine,
    because training ends if the learner's machine fails.

    Args:
        num_shards: Number of actors.
        batch_size: Number of transitions per batch.
        seed: Random seed, or None.
        **arguments: Further arguments of each shard's `ReplayBuffer`.
    """

    def __init__(
        self, num_shards: int, batch_size: int, seed: int | None = None, **arguments: Any
    ) -> None:
        own = ray.get_runtime_context().get_node_id()
        address = next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == own)
        shard = ray.remote(num_cpus=0, resources={f"node:{address}": 0.001}, max_restarts=-1)(
            _ReplayBufferShard
        )
        self.shards = [
            shard.remote(seed=None if seed is None else seed + i, **arguments)
            for i in range(num_shards)
        ]
        self._next_shard = itertools.cycle(range(num_shards))
        self._batch_size = batch_size
        self._batches: deque[tuple[int, ray.ObjectRef]] = deque()
        self._num_pending: Counter[int] = Counter()

    @property
    def has_requested_batches(self) -> bool:
        """Whether a batch has been requested; only new fragments trigger the first requests."""
        return bool(self._batches)

    def add(self, fragment: ray.ObjectRef) -> None:
        """Send a fragment to the next shard, and request batches from this shard."""
        shard = next(self._next_shard)
        self.shards[shard].add.remote(fragment)
        self._prefetch(shard)

    def _prefetch(self, shard: int) -> None:
        """Request batches until `_NUM_PREFETCHED_BATCHES` batches of a shard are pending."""
        while self._num_pending[shard] < _NUM_PREFETCHED_BATCHES:
            self._batches.append((shard, self.shards[shard].try_sample.remote(self._batch_size)))
            self._num_pending[shard] += 1

    def next_batch(self) -> tuple[int, Batch] | None:
        """Return the oldest requested batch and the index of its shard.

        The result is None if the shard is empty or was restarted. The next fragment for this shard
        triggers new requests for batches.
        """
        shard, reference = self._batches.popleft()
        self._num_pending[shard] -= 1
        try:
            batch = ray.get(reference)
        except RayActorError:
            return None
        if batch is None:
            return None
        self._prefetch(shard)
        return shard, batch

    def update_priorities(
        self, shard: int, rows: NDArray[np.int64], td_errors: NDArray[np.float32]
    ) -> None:
        """Set the priorities of transitions of a shard; see `ReplayBuffer.update_priorities`."""
        self.shards[shard].update_priorities.remote(rows, td_errors)

    def stats(self) -> dict[str, int]:
        """Return the statistics of the replay buffer, summed over the shards."""
        total: Counter[str] = Counter()
        for one in self.foreach_shard("stats"):
            total.update(one)
        return dict(total)

    def get_state(self) -> list[dict[str, Any]]:
        """Return the state of each shard."""
        return self.foreach_shard("get_state")

    def set_state(self, state: list[dict[str, Any]]) -> None:
        """Restore the state of each shard.

        Raises:
            CheckpointError: If the state has another number of shards.
        """
        if len(state) != len(self.shards):
            raise CheckpointError(
                f"num_replay_shards is {len(self.shards)}, but the stored replay buffer has "
                f"{len(state)} shards; set num_replay_shards to {len(state)}"
            )
        parts = zip(self.shards, state, strict=True)
        ray.get([shard.set_state.remote(part) for shard, part in parts])

    def foreach_shard(self, method: str) -> list[Any]:
        """Return the results of a method of all shards, except shards that are restarting."""
        results = []
        for reference in [getattr(shard, method).remote() for shard in self.shards]:
            try:
                results.append(ray.get(reference))
            except RayActorError:
                continue
        return results

    def stop(self) -> None:
        """Stop the actors."""
        for shard in self.shards:
            ray.kill(shard)
