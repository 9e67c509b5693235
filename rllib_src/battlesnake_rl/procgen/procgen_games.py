"""Properties of the 16 Procgen games: modes, maximum lengths and reward ranges."""

from __future__ import annotations

from typing import NamedTuple


class _ProcgenGame(NamedTuple):
    """Properties of one Procgen game."""

    max_turns: int
    """Number of env steps after which an episode is truncated."""
    easy: tuple[float, float]
    """Mean episode rewards for the normalized scores 0 and 1.

    An agent that was trained without observations has the first reward. The second is the maximum
    reward, or the reward of the best known agents.
    """
    hard: tuple[float, float]
    """The same rewards in the mode hard."""
    more_modes: tuple[str, ...] = ()
    """Distribution modes in addition to easy and hard."""

    @property
    def modes(self) -> tuple[str, ...]:
        """Return the names of all distribution modes."""
        return ("easy", "hard", *self.more_modes)


_EXPLORATION_MODES = ("exploration",)
_MEMORY_EXPLORATION_MODES = ("memory", "exploration")

# Source of the reward ranges: Cobbe et al., "Leveraging Procedural Generation to Benchmark
# Reinforcement Learning" (2020), appendix C.
GAMES: dict[str, _ProcgenGame] = {
    "bigfish": _ProcgenGame(6000, (1, 40), (0, 40)),
    "bossfight": _ProcgenGame(4000, (0.5, 13), (0.5, 13)),
    "caveflyer": _ProcgenGame(1000, (3.5, 12), (2, 13.4), _MEMORY_EXPLORATION_MODES),
    "chaser": _ProcgenGame(1000, (0.5, 13), (0.5, 14.2), ("extreme",)),
    "climber": _ProcgenGame(1000, (2, 12.6), (1, 12.6), _EXPLORATION_MODES),
    "coinrun": _ProcgenGame(1000, (5, 10), (5, 10), _EXPLORATION_MODES),
    "dodgeball": _ProcgenGame(1000, (1.5, 19), (1.5, 19), ("extreme", "memory")),
    "fruitbot": _ProcgenGame(1000, (-1.5, 32.4), (-0.5, 27.2)),
    "heist": _ProcgenGame(1000, (3.5, 10), (2, 10), _MEMORY_EXPLORATION_MODES),
    "jumper": _ProcgenGame(1000, (3, 10), (1, 10), _MEMORY_EXPLORATION_MODES),
    "leaper": _ProcgenGame(500, (3, 10), (1.5, 10), ("extreme", "exploration")),
    "maze": _ProcgenGame(500, (5, 10), (4, 10), _MEMORY_EXPLORATION_MODES),
    "miner": _ProcgenGame(1000, (1.5, 13), (1.5, 20), ("memory",)),
    "ninja": _ProcgenGame(1000, (3.5, 10), (2, 10), _EXPLORATION_MODES),
    "plunder": _ProcgenGame(4000, (4.5, 30), (3, 30)),
    "starpilot": _ProcgenGame(1000, (2.5, 64), (1.5, 35), ("extreme",)),
}
"""Properties of all games, keyed by game name."""


def normalized_score(reward: float, env_name: str, distribution_mode: str = "easy") -> float:
    """Normalize a mean episode reward to the game's published reward range.

    An agent without observations has the score 0; the best known agents have the score 1.

    Raises:
        ValueError: If the mode has no published reward range; only easy and hard have a range.

    >>> normalized_score(20.5, "bigfish")
    0.5
    """
    if distribution_mode not in ("easy", "hard"):
        raise ValueError(
            f"distribution_mode {distribution_mode!r} has no published range of rewards; "
            "scores can be normalized in the modes easy and hard"
        )
    blind, best = getattr(GAMES[env_name], distribution_mode)
    return float((reward - blind) / (best - blind))
