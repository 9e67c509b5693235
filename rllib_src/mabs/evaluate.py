"""``battlesnake-gym evaluate``: how often a policy wins against named opponents."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from battlesnake_gym import snakes
from mabs.environment import make_vector
from mabs.opponents import ask
from mabs.policies import Values, load

Z95 = 1.959964
"""Standard deviations that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Results:
    """What came of a number of games, as the policy's snake sees it."""

    wins: int
    draws: int
    losses: int
    mean_turns: float
    """How long its snake lived, in turns."""

    @property
    def games(self) -> int:
        """All games played."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Wins per game."""
        return self.wins / self.games

    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % confidence interval of the win rate.

        >>> low, high = Results(wins=50, draws=0, losses=50, mean_turns=1.0).interval()
        >>> round(low, 3), round(high, 3)
        (0.404, 0.596)
        """
        n, p = self.games, self.win_rate
        middle = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
        half = Z95 / (1 + Z95**2 / n) * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
        return middle - half, middle + half

    def __str__(self) -> str:
        low, high = self.interval()
        return (
            f"{self.games} games: {self.wins} won, {self.draws} drawn, {self.losses} lost; "
            f"win rate {self.win_rate:.1%} (95 % interval {low:.1%} to {high:.1%}); "
            f"lived {self.mean_turns:.1f} turns on average"
        )


def play(
    values: Values, env_config: Mapping[str, Any], opponents: Sequence[str], games: int, seed: int
) -> Results:
    """Play ``games`` games, all at once, the policy's snake in a seat drawn for each game."""
    seats = len(opponents) + 1
    vector = make_vector(games, {**env_config, "num_snakes": seats})
    random = np.random.default_rng(seed)
    own = random.integers(seats, size=games)
    lanes = np.arange(games)
    strategies = [
        {
            int(seat): snakes.make(name, seed=int(random.integers(2**31)))
            for seat, name in zip(np.delete(np.arange(seats), own[game]), opponents, strict=True)
        }
        for game in range(games)
    ]
    observations, infos = vector.reset(seed=int(random.integers(2**31)))
    playing = np.ones(games, dtype=np.bool_)
    lived = np.zeros(games)
    won, drawn = np.zeros(games, dtype=np.bool_), np.zeros(games, dtype=np.bool_)
    with tqdm(total=games, desc="games", unit="game") as bar:
        while playing.any():
            actions = np.zeros((games, seats), dtype=np.uint8)
            asked = np.flatnonzero(playing)
            q_values = values(observations[asked, own[asked]])
            allowed = infos["action_mask"][asked, own[asked]]
            actions[asked, own[asked]] = np.where(allowed, q_values, -np.inf).argmax(-1)
            for game in asked:
                ask(vector, int(game), strategies[game], infos["alive"], actions)
            observations, _, _, truncations, infos = vector.step(actions)
            lived[playing] = infos["turn"][playing]
            survived = infos["cause"][lanes, own] == 0
            over = ~infos["alive"].any(-1)
            ended = playing & (over | ~survived)
            cut = truncations.any(-1)
            nobody_left = (infos["cause"] > 0).all(-1)
            won |= ended & survived & ~cut
            drawn |= ended & (nobody_left | cut)
            playing &= ~ended
            bar.update(int(ended.sum()))
    return Results(
        wins=int(won.sum()),
        draws=int(drawn.sum()),
        losses=int(games - won.sum() - drawn.sum()),
        mean_turns=float(lived.mean()),
    )


def main(argv: list[str] | None = None) -> int:
    """``battlesnake-gym evaluate``."""
    parser = argparse.ArgumentParser(
        prog="battlesnake-gym evaluate",
        description="Play a policy, greedily and by the rules it was trained on, against named "
        "opponents (`battlesnake-gym snakes` lists them) and print its win rate.",
    )
    parser.add_argument("policy", type=Path, help="a run, a checkpoint or a policy.onnx")
    parser.add_argument(
        "--opponents", default="hungry,cautious,safe-random", help="names, separated by commas"
    )
    parser.add_argument("--games", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of games, seats and opponents")
    arguments = parser.parse_args(argv)
    opponents = [name for name in arguments.opponents.split(",") if name]
    if unknown := sorted(set(opponents) - set(snakes.names())):
        parser.error(f"unknown opponents {', '.join(unknown)}; known: {', '.join(snakes.names())}")
    if not opponents or arguments.games < 1:
        parser.error("--opponents and --games must not be empty")
    try:
        values, env_config = load(arguments.policy)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    results = play(values, env_config, opponents, arguments.games, arguments.seed)
    sys.stdout.write(f"{arguments.policy} against {', '.join(opponents)}: {results}\n")
    return 0
