"""How fast the engine plays: CPU time per board-turn, one thread.

Games of 4 snakes on 11x11 whose moves are random among those that the engine's mask ``fatal``
leaves. They are played once to write down the moves; what is timed is playing the same games again
from the same seeds: the steps and the resets of the games that ended, in one loop of Python, so
that a batch of 1 pays the price of the call. Each figure is the median of several repetitions.

    python benchmarks/engine.py
    python benchmarks/engine.py --environment 64 1024
    python benchmarks/engine.py --environment 1024 --opponents hungry,hungry,hungry

With ``--environment`` it is the vector environment that is timed, with its default observation,
mask and rewards: `step` alone, and how much of it is not the engine's. With opponents it is
Gymnasium's vector environment with one learner in each game, in learner steps.

Nothing here is a test: the figures depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import VectorBattlesnake
from battlesnake_gym.engine import engine
from battlesnake_gym.engine.engine import Games
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv
from battlesnake_gym.mdp import observations
from battlesnake_gym.rules import Game

_SNAKES = 4
_SIZE = 11
_BATCHES = (1, 64, 1024, 4096)
_OBSERVATION = "planes"

_STANDARD = {
    "standard, fast food": (Game(), "fast"),
    "standard, official food": (Game(), "official"),
}


@dataclass
class Plan:
    """Moves and resets of games played before: entry t belongs to turn t of all games."""

    game: Game
    food_rng: str
    seeds: NDArray[np.int64]
    actions: list[NDArray[np.uint8]]
    resets: list[tuple[NDArray[np.int64], NDArray[np.bool_]] | None]
    ended: int

    @property
    def board_turns(self) -> int:
        """Turns of single games."""
        return len(self.actions) * len(self.seeds)

    def games(self) -> Games:
        """The games at their first turn."""
        games = make(len(self.seeds), self.game, self.food_rng)
        games.reset(self.seeds)
        return games


def make(num_games: int, game: Game, food_rng: str) -> Games:
    """Games of the size that is measured."""
    return Games(
        num_games, width=_SIZE, height=_SIZE, num_snakes=_SNAKES, game=game, food_rng=food_rng
    )


def prepare(num_games: int, turns: int, game: Game, food_rng: str) -> Plan:
    """Play games to write down what happens in them."""
    rand = np.random.default_rng(7)
    games = make(num_games, game, food_rng)
    seeds = rand.integers(1, 2**62, num_games)
    plan = Plan(game, food_rng, seeds, [], [], 0)
    games.reset(seeds)
    mask = np.zeros((num_games, _SNAKES, 4), np.bool_)
    for _ in range(turns):
        games.action_mask("fatal", mask)
        actions = np.where(mask, rand.random(mask.shape), -1).argmax(-1).astype(np.uint8)
        plan.actions.append(actions)
        games.step(actions)
        over = games.over.copy()
        plan.ended += int(over.sum())
        plan.resets.append((rand.integers(1, 2**62, num_games), over) if over.any() else None)
        if over.any():
            games.reset(*plan.resets[-1])  # type: ignore[misc]
    return plan


def play(plan: Plan, games: Games, after: Callable[[], object] | None = None) -> None:
    """What is timed."""
    step, reset = games.step, games.reset
    for actions, new in zip(plan.actions, plan.resets, strict=True):
        step(actions)
        if new:
            reset(*new)
        if after:
            after()


def nanoseconds(plan: Plan, repetitions: int, beside: str | None = None) -> float:
    """Median CPU time of a board-turn; ``beside`` says what is done besides playing."""
    samples = []
    encoder = observations.get(_OBSERVATION)
    shape = len(plan.seeds), _SNAKES, *encoder.shape(_SIZE, _SIZE)
    out = np.zeros(shape if beside else 1, np.uint8)
    address, size = out.ctypes.data, out.nbytes
    for _ in range(repetitions):
        games = plan.games()
        if beside == "observe":
            games.observe(encoder, out)
        after = partial(ctypes.memset, address, 1, size) if beside == "memset" else None
        start = time.thread_time_ns()
        play(plan, games, after)
        samples.append((time.thread_time_ns() - start) / plan.board_turns)
    return statistics.median(samples)


def report(repetitions: int) -> None:
    """Print a line for every case and batch."""
    print(f"{_SIZE}x{_SIZE}, {_SNAKES} snakes, one thread, CPU time per board-turn in ns;")
    print(
        f"observations: {_OBSERVATION}, {observations.get(_OBSERVATION).shape(_SIZE, _SIZE)} uint8"
    )
    print("per snake; memset: of as many bytes. In brackets: million board-turns per second.")
    header = (
        f"{'game':24}{'batch':>6}{'turns':>7}{'bare':>16}{'with obs':>16}{'obs':>8}{'memset':>8}"
    )
    print(f"\n{header}{'ratio':>7}")
    for name, (game, food_rng) in _STANDARD.items():
        for batch in _BATCHES:
            plan = prepare(batch, max(360, 40_000 // batch), game, food_rng)
            bare = nanoseconds(plan, repetitions)
            seen = nanoseconds(plan, repetitions, "observe")
            memset = nanoseconds(plan, repetitions, "memset") - bare
            length = plan.board_turns / max(plan.ended, 1)
            print(
                f"{name:24}{batch:6}{length:7.0f}{bare:8.0f} ({1e3 / bare:5.1f})"
                f"{seen:8.0f} ({1e3 / seen:5.1f}){seen - bare:8.0f}{memset:8.0f}"
                f"{(seen - bare) / memset:7.2f}",
                flush=True,
            )


def step_seconds(num_games: int, turns: int) -> tuple[float, float]:
    """CPU seconds of a step of the vector environment, and those of them spent in the engine."""
    env = VectorBattlesnake(num_games)
    spent = {"step": 0.0, "engine": 0.0}

    def timed(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                spent[what] += time.process_time() - start

        return call

    step = timed("step", env.step)
    rand = np.random.default_rng(0)
    _, infos = env.reset(seed=1)
    for turn in range(-100, turns):  # the first hundred warm up and spread the games' ages
        if turn == 0:
            spent["step"] = 0.0
            for name in ("step", "reset", "action_mask"):
                setattr(env.games, name, timed("engine", getattr(env.games, name)))
        scores = rand.random((num_games, env.num_snakes, 4), dtype=np.float32)
        *_, infos = step((scores * infos["action_mask"]).argmax(axis=2))
    return spent["step"] / turns, spent["engine"] / turns


def learner_steps(num_games: int, opponents: list[str], turns: int) -> float:
    """Learner steps a CPU-second of the vector environment with one learner in each game."""
    envs = BattlesnakeVectorEnv(num_games, opponents)
    rand = np.random.default_rng(0)
    _, infos = envs.reset(seed=1)
    steps, start = 0, 0.0
    for turn in range(-20, turns):
        if turn == 0:
            steps, start = 0, time.process_time()
        scores = rand.random((num_games, 4), dtype=np.float32)
        *_, infos = envs.step((scores * infos["action_mask"]).argmax(axis=1))
        steps += int(infos["acted"].sum())
    return steps / (time.process_time() - start)


def report_environment(num_games: int, opponents: str | None, repetitions: int) -> None:
    """Print a line for a batch of this size."""
    if opponents:
        speed = learner_steps(num_games, opponents.split(","), max(50, 100_000 // num_games))
        print(f"{num_games:5} games: {speed:,.0f} learner steps a CPU-second")
        return
    rounds = [step_seconds(num_games, max(200, 200_000 // num_games)) for _ in range(repetitions)]
    whole, inside = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"{num_games:5} games: {whole * 1e6:.1f} us/step, {(whole - inside) * 1e6:.1f} us "
        f"({1 - inside / whole:.0%}) of it outside the engine, "
        f"{num_games / whole:,.0f} board-turns/s"
    )


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=7, help="of each figure (default 7)")
    parser.add_argument("--environment", type=int, nargs="+", metavar="GAMES", help="batch sizes")
    parser.add_argument("--opponents", help="names, separated by commas: with one learner a game")
    options = parser.parse_args()
    if not engine.COMPILED:
        raise SystemExit("the engine was not compiled: run `make build` first")
    if options.environment is None:
        report(options.repetitions)
    for num_games in options.environment or ():
        report_environment(num_games, options.opponents, options.repetitions)


if __name__ == "__main__":
    main()
