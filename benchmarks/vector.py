"""How fast the vector environment steps, and how much of that time is spent outside the engine.

    python benchmarks/vector.py --games 64 1024
    python benchmarks/vector.py --opponents hungry,hungry,hungry

With opponents it is Gymnasium's vector environment that is measured, in learner steps.

11x11, 4 snakes, standard rules and map, default observation, mask and rewards, random moves among
those that the mask allows. One thread; CPU time of `step` alone, the median of several rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from battlesnake_gym import VectorBattlesnake
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv

ENGINE_CALLS = ("step", "reset", "action_mask")


class Stopwatch:
    """Adds up the CPU time of calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, with its time counted."""

        def call(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.process_time() - start

        return call


def measure(num_games: int, turns: int) -> tuple[float, float]:
    """CPU seconds per step, and those of them spent in the engine."""
    env = VectorBattlesnake(num_games)
    whole, engine = Stopwatch(), Stopwatch()
    step = whole.timed(env.step)
    random = np.random.default_rng(0)
    _, infos = env.reset(seed=1)
    for turn in range(-100, turns):  # the first hundred warm up and spread the games' ages
        if turn == 0:
            whole.seconds = 0.0
            for name in ENGINE_CALLS:
                setattr(env.games, name, engine.timed(getattr(env.games, name)))
        scores = random.random((num_games, env.num_snakes, 4), dtype=np.float32)
        *_, infos = step((scores * infos["action_mask"]).argmax(axis=2))
    return whole.seconds / turns, engine.seconds / turns


def measure_learner(num_games: int, opponents: list[str], turns: int) -> float:
    """Learner steps a CPU-second of the vector environment with one learner in each game."""
    envs = BattlesnakeVectorEnv(num_games, opponents)
    random = np.random.default_rng(0)
    _, infos = envs.reset(seed=1)
    steps, start = 0, 0.0
    for turn in range(-20, turns):
        if turn == 0:
            steps, start = 0, time.process_time()
        scores = random.random((num_games, 4), dtype=np.float32)
        *_, infos = envs.step((scores * infos["action_mask"]).argmax(axis=1))
        steps += int(infos["acted"].sum())
    return steps / (time.process_time() - start)


def main() -> None:
    """Print a line for each number of games."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, nargs="+", default=[64, 1024], help="batch sizes")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts")
    parser.add_argument("--opponents", help="names, separated by commas: with one learner a game")
    options = parser.parse_args()
    if options.opponents:
        print("games   learner steps a CPU-second")
        for num_games in options.games:
            turns = max(50, 100_000 // num_games)
            speed = measure_learner(num_games, options.opponents.split(","), turns)
            print(f"{num_games:5}   {speed:26,.0f}")
        return
    print("games   us/step   of it outside the engine   board-turns/s")
    for num_games in options.games:
        turns = max(200, 200_000 // num_games)
        rounds = [measure(num_games, turns) for _ in range(options.rounds)]
        whole, engine = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(
            f"{num_games:5}  {whole * 1e6:8.1f}   {(whole - engine) * 1e6:8.1f} us "
            f"({1 - engine / whole:4.0%})   {num_games / whole:17,.0f}"
        )


if __name__ == "__main__":
    main()
