"""The baseline's numbers, as the starter pack published them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OBSERVATION: dict[str, Any] = {"name": "bordered-51s", "frames": 2}
"""What a snake of the baseline sees: the pack's planes with a border, this turn and the last."""


@dataclass(frozen=True)
class MXNetSettings:
    """How the baseline learns; the defaults are the published ones."""

    buffer_size: int = 5000
    """Moves that each snake remembers."""
    update_every: int = 20
    """A snake learns once in so many of its moves."""
    batch_size: int = 64
    warmup_batches: int = 3
    """A snake learns nothing before it remembers so many batches."""
    gamma: float = 0.95
    tau: float = 1e-3
    """How far the target network follows at each update."""
    lr: float = 5e-4
    lr_halved_every: int = 500_000
    """In updates."""
    epsilon_start: float = 1.0
    epsilon_decay: float = 0.995
    """Epsilon is multiplied by it after every game."""
    epsilon_end: float = 0.01
    turns_per_iteration: int = 100
    """Not published: how often a row of the learning curve is written."""
    ladder_share: float = 0.05
    """Not published: the part of the CPU time that goes into games on the ladder."""
