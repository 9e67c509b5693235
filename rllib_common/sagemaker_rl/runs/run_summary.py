"""Summary of a run, which its last log lines show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Text of a run's last log lines: strength, model files and next command."""

    strength: str
    model: str
    next_command: str
