"""Measure the speed of the engine: CPU time per env step, on one thread.

The games have 4 snakes on 11x11. Moves are random among the moves that the mask ``fatal`` allows.
The benchmark plays the games once to record the moves. The benchmark then replays the moves, and
the resets of finished games, from the same seeds. The replay is one Python loop, so the result for
a batch of 1 includes the overhead of the call. Each result is the median of several repetitions.

    python benchmarks/engine.py
    python benchmarks/engine.py --environment 64 1024
    python benchmarks/engine.py --environment 1024 --opponents hungry,hungry,hungry

``--environment`` measures the vector environment with its default observation, mask and rewards:
the time of `step`, and the time spent outside the engine. ``--opponents`` measures
Gymnasium's vector environment with one learner per game, in learner steps.

The results depend on the machine and on the load of the machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import VectorBattlesnake
from battlesnake_gym.common.command_line import Parser
from battlesnake_gym.engine import engine
from battlesnake_gym.engine.engine import Games
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv
from battlesnake_gym.mdp import observations
from battlesnake_gym.rules import Game

_NUM_SNAKES = 4
_BOARD_SIZE = 11
_BATCH_SIZES = (1, 64, 1024, 4096)
_ENCODER_NAME = "planes"

_GAME_CASES = {
    "standard, fast food": (Game(), "fast"),
    "standard, official food": (Game(), "official"),
}


@dataclass
class _Recording:
    """Moves and resets of recorded games.

    Entry t of ``actions`` and of ``resets`` belongs to turn t of all games.
    """

    game: Game
    food_rng: str
    seeds: NDArray[np.int64]
    actions: list[NDArray[np.uint8]]
    resets: list[tuple[NDArray[np.int64], NDArray[np.bool_]] | None]
    ended: int

    @property
    def num_env_steps(self) -> int:
        """The number of turns played, summed over all games."""
        return len(self.actions) * len(self.seeds)

    def start_games(self) -> Games:
        """Create the games at their first turn."""
        games = _create_games(len(self.seeds), self.game, self.food_rng)
        games.reset(self.seeds)
        return games


def _create_games(num_games: int, game: Game, food_rng: str) -> Games:
    """Create games with 4 snakes on an 11x11 board."""
    size = {"width": _BOARD_SIZE, "height": _BOARD_SIZE, "num_snakes": _NUM_SNAKES}
    return Games(num_games, **size, game=game, food_rng=food_rng)


def _record_games(num_games: int, turns: int, game: Game, food_rng: str) -> _Recording:
    """Play random games, and record the moves and the resets of the games."""
    rand = np.random.default_rng(7)
    games = _create_games(num_games, game, food_rng)
    seeds = rand.integers(1, 2**62, num_games)
    recording = _Recording(game, food_rng, seeds, [], [], 0)
    games.reset(seeds)
    mask = np.zeros((num_games, _NUM_SNAKES, 4), np.bool_)
    for _ in range(turns):
        games.action_mask("fatal", mask)
        actions = np.where(mask, rand.random(mask.shape), -1).argmax(-1).astype(np.uint8)
        recording.actions.append(actions)
        games.step(actions)
        over = games.over.copy()
        recording.ended += int(over.sum())
        recording.resets.append((rand.integers(1, 2**62, num_games), over) if over.any() else None)
        if over.any():
            games.reset(*recording.resets[-1])  # type: ignore[misc]
    return recording


def _nanoseconds_per_env_step(recording: _Recording, repetitions: int, observe: bool) -> float:
    """Return the median CPU time per env step of replayed moves and resets, in nanoseconds."""
    samples = []
    encoder = observations.get(_ENCODER_NAME)
    shape = len(recording.seeds), _NUM_SNAKES, *encoder.shape(_BOARD_SIZE, _BOARD_SIZE)
    for _ in range(repetitions):
        games = recording.start_games()
        if observe:
            games.observe(encoder, np.zeros(shape, np.uint8))
        step, reset = games.step, games.reset
        start = time.thread_time_ns()
        for actions, new in zip(recording.actions, recording.resets, strict=True):
            step(actions)
            if new:
                reset(*new)
        samples.append((time.thread_time_ns() - start) / recording.num_env_steps)
    return statistics.median(samples)


def _print_engine_speed(repetitions: int) -> None:
    """Print one line for each type of game and batch size."""
    shape = observations.get(_ENCODER_NAME).shape(_BOARD_SIZE, _BOARD_SIZE)
    print(
        f"{_BOARD_SIZE}x{_BOARD_SIZE}, {_NUM_SNAKES} snakes, one thread, "
        "CPU time per env step in ns (in parentheses: million env steps per second)"
    )
    print(f"observations: {_ENCODER_NAME}, {shape} uint8 per snake")
    print(f"\n{'game':24}{'batch':>6}{'turns':>7}{'bare':>16}{'with obs':>16}{'obs':>8}")
    for name, (game, food_rng) in _GAME_CASES.items():
        for batch in _BATCH_SIZES:
            recording = _record_games(batch, max(360, 40_000 // batch), game, food_rng)
            bare, with_observations = (
                _nanoseconds_per_env_step(recording, repetitions, observe)
                for observe in (False, True)
            )
            length = recording.num_env_steps / max(recording.ended, 1)
            print(
                f"{name:24}{batch:6}{length:7.0f}{bare:8.0f} ({1e3 / bare:5.1f})"
                f"{with_observations:8.0f} ({1e3 / with_observations:5.1f})"
                f"{with_observations - bare:8.0f}",
                flush=True,
            )


def _measure_step_seconds(num_games: int, turns: int) -> tuple[float, float]:
    """Measure the CPU time of one step of the vector environment.

    Returns:
        The CPU seconds of the whole step, and the CPU seconds within the engine.
    """
    env = VectorBattlesnake(num_games)
    spent = {"step": 0.0, "engine": 0.0}

    def wrap_with_timer(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function to add its CPU time to ``spent[what]``."""

        def timed_call(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                spent[what] += time.process_time() - start

        return timed_call

    step = wrap_with_timer("step", env.step)
    rand = np.random.default_rng(0)
    _, infos = env.reset(seed=1)
    # The first 100 turns warm up the caches and spread the turn numbers of the games.
    for turn in range(-100, turns):
        if turn == 0:
            spent["step"] = 0.0
            for name in ("step", "reset", "action_mask"):
                setattr(env.games, name, wrap_with_timer("engine", getattr(env.games, name)))
        scores = rand.random((num_games, env.num_snakes, 4), dtype=np.float32)
        *_, infos = step((scores * infos["action_mask"]).argmax(axis=2))
    return spent["step"] / turns, spent["engine"] / turns


def _learner_steps_per_cpu_second(num_games: int, opponents: list[str], turns: int) -> float:
    """Measure the learner steps per CPU second with one learner per game."""
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


def _print_environment_speed(num_games: int, opponents: str | None, repetitions: int) -> None:
    """Print the speed of the vector environment for one batch size."""
    if opponents:
        speed = _learner_steps_per_cpu_second(
            num_games, opponents.split(","), max(50, 100_000 // num_games)
        )
        print(f"{num_games:5} games: {speed:,.0f} learner steps per CPU second")
        return
    rounds = [
        _measure_step_seconds(num_games, max(200, 200_000 // num_games)) for _ in range(repetitions)
    ]
    total, in_engine = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"{num_games:5} games: {total * 1e6:.1f} us/step, "
        f"outside the engine {(total - in_engine) * 1e6:.1f} us ({1 - in_engine / total:.0%}), "
        f"{num_games / total:,.0f} env steps/s"
    )


def main() -> None:
    """Run and print the selected measurements."""
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--repetitions", type=int, default=7, help="repetitions per measurement")
    add("--environment", type=int, nargs="+", metavar="GAMES",
        help="batch sizes of the vector environment, in games")  # fmt: skip
    add("--opponents", help="comma-separated opponents of one learner per game")
    options = parser.parse_args()
    if not engine.COMPILED:
        raise SystemExit("the engine was not compiled; run `make build` first")
    if options.environment is None:
        _print_engine_speed(options.repetitions)
    for num_games in options.environment or ():
        _print_environment_speed(num_games, options.opponents, options.repetitions)


if __name__ == "__main__":
    main()
