"""Tunes the weights of the search by playing games against itself, on all cores (Ray).

Simultaneous perturbation (SPSA, Spall 1992): in every round all weights are moved up or down at
random, the two opposite versions play each other from the same starts in both seats, and the
weights take a step towards the winner. ``--match`` lets the result play today's weights.

    python benchmarks/tune_search.py --rounds 300 --games 16 --state tuning.json
    python benchmarks/tune_search.py --match tuning.json --games 400

The state is written after every round; the same command goes on from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import ray
from tqdm import tqdm

from battlesnake_gym.board import Board
from battlesnake_gym.files import write_atomically
from battlesnake_gym.rules import Game
from heuristics.playing import play
from heuristics.search import Search, Weights

SEED_STEP = 1_000_003
FIXED = ("territory", "draw")  # the unit of all others; what a draw is worth is a matter of taste
LONGEST_GAME = 800

Numbers = dict[str, int]


@ray.remote  # type: ignore[untyped-decorator]
def pair_of_games(one: Numbers, other: Numbers, seed: int, snakes: int, nodes: int) -> float:
    """Play one start twice with seats exchanged; the mean score of ``one`` (draw: one half).

    With more than two snakes, ``one`` and ``other`` sit alternately.
    """
    score = 0.0
    for first in (0, 1):
        board = Board.new(11, 11, snakes, game=Game(seed=seed))
        sides = {snake.id: (seat + first) % 2 for seat, snake in enumerate(board.snakes)}
        play(
            board,
            {
                snake_id: Search(Weights(**(other if side else one)), nodes=nodes)
                for snake_id, side in sides.items()
            },
            LONGEST_GAME,
        )
        winner = board.winner if board.is_over() else None
        score += 0.5 if winner is None else float(sides[winner.id] == 0)
    return score / 2


def match(
    one: Numbers, other: Numbers, first_seed: int, args: argparse.Namespace, show: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Scores of ``one`` in ``args.games`` games, a value for every pair of games."""
    pending = [
        pair_of_games.remote(one, other, first_seed + i * SEED_STEP, args.snakes, args.nodes)
        for i in range(args.games // 2)
    ]
    bar = tqdm(total=len(pending), desc="pairs", disable=not show)
    scores = []
    while pending:
        done, pending = ray.wait(pending)
        scores += ray.get(done)
        bar.update(len(done))
    bar.close()
    return np.array(scores)


def tune(args: argparse.Namespace) -> None:
    """Improve the weights of ``args.state`` for ``args.rounds`` rounds."""
    start = dataclasses.asdict(Weights())
    state: dict[str, Any] = {"start": start, "now": dict(start), "round": 0}
    if args.state.exists():
        state = json.loads(args.state.read_text())
    names = [name for name in start if name not in FIXED]
    rng = np.random.default_rng(state["round"])
    bar = tqdm(range(state["round"], args.rounds), desc="rounds")
    for number in bar:
        signs = rng.choice((-1, 1), len(names))
        # perturbations and steps are relative, so that large and small weights move alike
        shake = 0.25 / (1 + number) ** 0.1
        up, down = dict(state["now"]), dict(state["now"])
        for name, sign in zip(names, signs, strict=True):
            width = max(1.0, shake * abs(start[name]))
            up[name] = round(state["now"][name] + sign * width)
            down[name] = round(state["now"][name] - sign * width)
        gain = match(up, down, 1 + number * 500, args).mean() - 0.5
        step = args.step * gain / (1 + number / 50) ** 0.6
        for name, sign in zip(names, signs, strict=True):
            state["now"][name] += step * sign * max(1.0, abs(start[name]))
        state["round"] = number + 1
        bar.set_postfix({name: round(state["now"][name]) for name in names[:4]})
        save(args.state, state)


def save(path: Path, state: dict[str, Any]) -> None:
    """Keep the tuning whole on disk, whenever it is interrupted."""
    write_atomically(path, lambda part: part.write_text(json.dumps(state, indent=1)))


def compare(args: argparse.Namespace) -> None:
    """Print how the weights of ``args.match`` score against today's."""
    loaded = json.loads(args.match.read_text())
    numbers = {name: round(value) for name, value in loaded.get("now", loaded).items()}
    scores = match(numbers, dataclasses.asdict(Weights()), 77, args, show=True)
    error = 1.96 * scores.std(ddof=1) / math.sqrt(len(scores))
    print(json.dumps(numbers))
    print(f"score {scores.mean():.3f} +- {error:.3f} in {2 * len(scores)} games")


def main() -> None:
    """Read the options and tune or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300, help="rounds in all (default 300)")
    parser.add_argument("--games", type=int, default=16, help="games a round (default 16)")
    parser.add_argument("--nodes", type=int, default=3000, help="positions a move (default 3000)")
    parser.add_argument("--snakes", type=int, default=2, help="snakes in a game (default 2)")
    parser.add_argument("--step", type=float, default=0.5, help="size of a step (default 0.5)")
    parser.add_argument("--state", type=Path, default=Path("tuning.json"), help="file of the run")
    parser.add_argument("--match", type=Path, help="compare these weights with today's instead")
    args = parser.parse_args()
    ray.init(address="local", include_dashboard=False, logging_level=logging.WARNING)
    compare(args) if args.match else tune(args)


if __name__ == "__main__":
    main()
