"""Properties of the 16 Procgen games: modes, maximum lengths and reward ranges."""

from __future__ import annotations

from typing import NamedTuple


class RewardRange(NamedTuple):
    """Mean episode rewards for the normalized scores 0 and 1."""

    blind: float
    """Mean episode reward of an agent that was trained without observations."""
    best: float
    """Maximum episode reward, or the mean episode reward of the best known agents."""


class ProcgenGame(NamedTuple):
    """Properties of one Procgen game."""

    max_turns: int
    """Number of env steps after which an episode is truncated."""
    easy: RewardRange
    hard: RewardRange
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
GAMES: dict[str, ProcgenGame] = {
    "bigfish": ProcgenGame(6000, RewardRange(1, 40), RewardRange(0, 40)),
    "bossfight": ProcgenGame(4000, RewardRange(0.5, 13), RewardRange(0.5, 13)),
    "caveflyer": ProcgenGame(
        1000, RewardRange(3.5, 12), RewardRange(2, 13.4), _MEMORY_EXPLORATION_MODES
    ),
    "chaser": ProcgenGame(1000, RewardRange(0.5, 13), RewardRange(0.5, 14.2), ("extreme",)),
    "climber": ProcgenGame(1000, RewardRange(2, 12.6), RewardRange(1, 12.6), _EXPLORATION_MODES),
    "coinrun": ProcgenGame(1000, RewardRange(5, 10), RewardRange(5, 10), _EXPLORATION_MODES),
    "dodgeball": ProcgenGame(
        1000, RewardRange(1.5, 19), RewardRange(1.5, 19), ("extreme", "memory")
    ),
    "fruitbot": ProcgenGame(1000, RewardRange(-1.5, 32.4), RewardRange(-0.5, 27.2)),
    "heist": ProcgenGame(1000, RewardRange(3.5, 10), RewardRange(2, 10), _MEMORY_EXPLORATION_MODES),
    "jumper": ProcgenGame(1000, RewardRange(3, 10), RewardRange(1, 10), _MEMORY_EXPLORATION_MODES),
    "leaper": ProcgenGame(
        500, RewardRange(3, 10), RewardRange(1.5, 10), ("extreme", "exploration")
    ),
    "maze": ProcgenGame(500, RewardRange(5, 10), RewardRange(4, 10), _MEMORY_EXPLORATION_MODES),
    "miner": ProcgenGame(1000, RewardRange(1.5, 13), RewardRange(1.5, 20), ("memory",)),
    "ninja": ProcgenGame(1000, RewardRange(3.5, 10), RewardRange(2, 10), _EXPLORATION_MODES),
    "plunder": ProcgenGame(4000, RewardRange(4.5, 30), RewardRange(3, 30)),
    "starpilot": ProcgenGame(1000, RewardRange(2.5, 64), RewardRange(1.5, 35), ("extreme",)),
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
