"""What more runners bring: calculated from what one costs, and measured.

    python -m benchmarks.machines                                     # what docs/scaling.md has
    python -m benchmarks.machines --measure 1 2 4 --seconds 8         # on this machine

A measurement trains with so many runners one after the other. From what each process spent with
the first number it calculates what the others should do, and prints both. It says something where
every runner has a core of its own, and two more are left.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

NETWORK = 1.25e9
"""Bytes a second between two machines: 10 Gbit/s."""
A_MACHINE = A_SHARD = 8
"""Runners of a machine, and of a replay shard."""


@dataclass(frozen=True)
class Costs:
    """What a fragment costs, in CPU seconds or bytes."""

    moves: float
    """In it: of the learner's snakes, or those that EXIT searched."""
    play: float
    """Of a runner."""
    learn: float
    """Of the learner's thread, for updates."""
    hand_on: float
    """Of the same thread, for all else."""
    threads: float
    """Of Ray's threads beside it."""
    size: float
    """Bytes that come from the runner."""
    shard: float = 0.0
    """Of a replay shard."""
    match: float = 0.0
    """Of runners, in matches for which the learner waits."""
    sends: float = 0.0
    """Sendings of weights to all runners."""
    waits: bool = False
    """Runners wait for the learner, and it for all of them."""
    own_pace: bool = False
    """The learner's steps of ``learn`` seconds do not become more with more fragments."""
    call: float = 5.8e-5
    """Of the learner's thread, to send weights to one runner."""
    weights: float = 1.2e6
    """Bytes that each machine is sent."""

    def parts(self, runners: int) -> dict[str, float]:
        """Seconds of each part for a fragment, if ``runners`` play and all other parts are one."""
        sends = self.sends
        if self.waits:
            sends = 1 / runners
        if self.own_pace:
            sends = self.play / runners / self.learn
        return {
            "runners": self.play / runners,
            "learning": 0.0 if self.own_pace else self.learn,
            "fragments": self.hand_on,
            "calls": self.call * runners * sends,
            "Ray's threads": self.threads,
            "shards": self.shard / max(2, -(-runners // A_SHARD)),
            "network in": self.size / NETWORK,
            "network out": self.weights * sends * -(-runners // A_MACHINE) / NETWORK,
        }

    def rate(self, runners: int) -> float:
        """Moves a second."""
        parts = self.parts(runners)
        thread = sum(parts.pop(name) for name in ("learning", "fragments", "calls"))
        if self.waits:
            return self.moves / (parts["runners"] + thread)
        return self.moves / (max(thread, *parts.values()) + self.match / runners)

    def full(self, part: str) -> float:
        """How many runners at full speed keep ``part`` busy."""
        most = 1.0
        while most < 1e6 and self.parts(round(most))[part] < self.parts(round(most))["runners"]:
            most *= 1.02
        return most


DUELS = {"num_snakes": 2, "observation": "reach", "action_mask": "none"}
LATE = {"deep_from": 1, "in_memory": 8, "match_pairs": 0}
"""Of EXIT, what the experiment ``champion`` has after 4.2 million moves."""


def training(name: str, runners: int) -> Any:
    """An algorithm that trains as its experiment does, but with shorter iterations."""
    from battlesnake_rl.mabs import algorithms

    algorithm, _, ratio = name.partition(" ")
    wins = {"rewards": {"won": 1, "died": -1}} if algorithm == "PPO" else {}
    games = {"DISTIL": DUELS, "PPO": DUELS | wins}.get(algorithm, {})
    config = algorithms.configure(algorithm, games).env_runners(num_env_runners=runners)
    config.debugging(seed=1, log_level="ERROR")
    if algorithm == "EXIT":
        short = {"moves": 40_000, "fragment": 1_500, "ladder_share": 0.0, "first_epochs": 1.0}
        config.settings = replace(config.settings, **short, **LATE)
        return config.build_algo()
    config.ladder_share = 0.0
    config.reporting(min_time_s_per_iteration=0.5, min_sample_timesteps_per_iteration=0)
    if ratio:
        config.training(training_intensity=float(ratio))
    return config.build_algo()


class Spent:
    """What an algorithm's processes spend from now on: CPU seconds by kind, fragments, moves."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm
        self.learning = self.steps = self.fragments = 0.0
        for name in ("_learn", "_learn_from", "_fit", "_remember"):
            self._wrap(name, self._learned)
        for name in ("_infos", "_take", "_sample", "_play"):
            self._wrap(name, self._came)

    def _wrap(self, name: str, note: Callable[[float, Any], None]) -> None:
        inner = getattr(self._algorithm, name, None)
        if inner is None:
            return

        def noted(*args: Any) -> Any:
            began = time.thread_time()
            result = inner(*args)
            if name == "_play":  # which plays while it is gone through
                result = list(result)
            note(time.thread_time() - began, result)
            return result

        setattr(self._algorithm, name, noted)

    def _learned(self, seconds: float, result: Any) -> None:
        self.learning += seconds
        self.steps += 1

    def _came(self, seconds: float, result: Any) -> None:
        self.fragments += len(result)

    def seen(self, results: dict[str, Any]) -> Counter[str]:
        """All sums up to now."""
        import psutil

        runners = results["env_runners"]
        searched = runners["num_env_steps_sampled_lifetime"]
        moves = runners.get("num_agent_steps_sampled_lifetime", {"default_agent": searched})
        own = psutil.Process()
        sums = Counter(
            learning=self.learning,
            steps=self.steps,
            fragments=self.fragments,
            moves=moves["default_agent"],
            thread=time.thread_time(),
            clock=time.monotonic(),
        )
        for process in [own, *own.children(recursive=True)]:
            try:
                times, command = process.cpu_times(), " ".join(process.cmdline())
            except psutil.Error:
                continue
            kinds = (kind for kind in ("Runner", "Shard") if kind in command)
            kind = "driver" if process == own else next(kinds, "Ray")
            sums[kind] += times.user + times.system
        return sums


def measured(name: str, runners: int, seconds: float) -> tuple[float, Costs]:
    """Moves a second of the clock, and what each process spent for them."""
    algorithm = training(name, runners)
    spent = Spent(algorithm)
    until = time.monotonic() + seconds / 3
    results = algorithm.train()
    while time.monotonic() < until:
        results = algorithm.train()
    before = spent.seen(results)
    while time.monotonic() < before["clock"] + seconds:
        results = algorithm.train()
    seen = spent.seen(results)
    seen.subtract(before)
    algorithm.stop()
    fragments, own_pace = seen["fragments"], name == "DISTIL"
    return seen["moves"] / seen["clock"], replace(
        COSTS[name],
        moves=seen["moves"] / fragments,
        play=seen["Runner"] / fragments,
        learn=seen["learning"] / (seen["steps"] if own_pace else fragments),
        hand_on=(seen["thread"] - seen["learning"]) / fragments,
        threads=(seen["driver"] - seen["thread"]) / fragments,
        shard=seen["Shard"] / fragments,
    )


def measure(names: list[str], counts: list[int], seconds: float) -> None:
    """Print what so many runners do, and what the costs of the first of these say."""
    import ray
    import torch

    torch.set_num_threads(1)
    ray.init("local", num_cpus=4 + max(counts), include_dashboard=False, log_to_driver=False)
    print("| training | runners | moves a second | calculated | of it |\n|---|---:|---:|---:|---:|")
    for name in names:
        costs = None
        for runners in counts:
            rate, found = measured(name, runners, seconds)
            costs = costs or found
            wanted = costs.rate(runners)
            print(f"| {name} | {runners} | {rate:,.0f} | {wanted:,.0f} | {rate / wanted:.0%} |")
        print(f"  {costs}", flush=True)
    os._exit(0)  # Ray's end would take longer


def main() -> None:
    """Print the tables, or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", type=int, nargs="*", default=[], metavar="RUNNERS")
    parser.add_argument("--seconds", type=float, default=8, help="for each row (%(default)s)")
    parser.add_argument("--only", nargs="*", default=list(COSTS), choices=COSTS)
    arguments = parser.parse_args()
    if not arguments.measure:
        print("\n".join(tables()))
        return
    measure(arguments.only, arguments.measure, arguments.seconds)


if __name__ == "__main__":
    main()
