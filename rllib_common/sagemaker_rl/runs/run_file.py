"""``run.json`` in a run's folder: what is trained, until when, and how it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym.files import write_atomically

RUN_FILE = "run.json"
GAMES = "games"
"""Folder of a run with the games that it was shown in, by iteration."""

REPORT = "report.html"

RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"


@dataclass(frozen=True, slots=True)
class RunFile:
    """What the file tells.

    ``state`` is as the run's process has written it: one that was killed leaves "running" behind
    (`run_lock.is_held` tells). ``why`` tells what a run failed of. ``settings`` are all
    hyperparameters by name; of what RLlib has only those that were given. ``plan`` has
    ``num_iters``, ``minutes`` and ``timesteps``, or None for what does not end it. ``began`` and
    ``ended`` are seconds since 1970 of the last process.
    """

    state: str
    began: float
    ended: float | None = None
    why: str = ""
    plan: dict[str, float | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        text = json.dumps(asdict(self), indent=1, default=str) + "\n"
        write_atomically(folder / RUN_FILE, lambda part: part.write_text(text))

    @classmethod
    def of(cls, folder: Path) -> RunFile | None:
        """That of a run; None where there is none, or what is there is none."""
        try:
            told = json.loads((folder / RUN_FILE).read_text())
            return cls(**{name: told[name] for name in cls.__slots__ if name in told})
        except (OSError, ValueError, TypeError):
            return None


def plain(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as text by dotted name, without those that are None.

    >>> plain({"lr": 0.5, "seed": None, "rl": {"n_step": 3}, "map": "royale"})
    {'lr': '0.5', 'rl.n_step': '3', 'map': 'royale'}
    """
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{name}.{inner}": text for inner, text in plain(value).items()}
        elif value is not None:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found
