"""Fragments that env runners send to learners and replay buffers.

This module imports neither torch nor RLlib, so the process of a replay buffer shard uses little
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Fragment:
    """Rows that an env runner recorded in consecutive turns.

    Attributes:
        columns: Arrays with one entry per row, by column name.
        num_env_steps: Number of env steps (turns of single games) played for these rows.
        num_agent_steps: Number of agent steps (moves of the learner's snakes).
    """

    columns: dict[str, NDArray[Any]]
    num_env_steps: int
    num_agent_steps: int

    def env_steps(self) -> int:
        """Return the number of env steps; RLlib's evaluation calls this method."""
        return self.num_env_steps

    def agent_steps(self) -> int:
        """Return the number of agent steps; RLlib's evaluation calls this method."""
        return self.num_agent_steps
