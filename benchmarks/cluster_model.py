"""What more runners bring: calculated from what one costs, and measured.

    python -m benchmarks.cluster_model                                     # what docs/scaling.md has
    python -m benchmarks.cluster_model --measure 1 2 4 --seconds 8         # on this machine

A measurement trains with each number of runners, one after the other. From what each process spent
with one, and the runners with the most, it calculates what all should do, and prints both. It says
something where every runner has a core of its own, and two more are left.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psutil

_MANY = 1e5
"""More runners than anyone has."""
_NETWORK = 1.25e9
"""Bytes a second between two machines: 10 Gbit/s."""
_A_SHARD = 8
"""Runners for which there is a replay shard, and two at least."""


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
    beside: float
    """By how much playing is dearer beside others: times the logarithm of the runners there."""
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
    together: int = 8
    """Runners of a machine."""

    def parts(self, runners: float) -> dict[str, float]:
        """Seconds of each part for a fragment, if ``runners`` play and all other parts are one."""
        play = (
            self.play * (1 + self.beside * math.log(max(min(runners, self.together), 1))) / runners
        )
        sends = self.sends
        if self.waits:
            sends = 1 / runners
        if self.own_pace:
            sends = play / self.learn
        return {
            "runners": play,
            "learning": 0.0 if self.own_pace else self.learn,
            "fragments": self.hand_on,
            "calls": self.call * runners * sends,
            "Ray's threads": self.threads,
            "shards": self.shard / max(2, -(-runners // _A_SHARD)),
            "network in": self.size / _NETWORK,
            "network out": self.weights * sends * -(-runners // self.together) / _NETWORK,
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
        runners = 0.1
        while runners < _MANY and self.parts(runners)[part] < self.parts(runners)["runners"]:
            runners *= 1.01
        return runners


APEX = "APEX, replay ratio 0.25"
LATE = "EXIT, late games"
_EXIT = Costs(
    moves=6_000,
    play=0.285,
    learn=0.149,
    hand_on=0.002,
    threads=0.002,
    size=1.2e6,
    beside=0.27,
    match=0.096,
)
COSTS = {
    APEX: Costs(
        moves=2_820,
        play=0.042,
        learn=0.035,
        hand_on=0.0018,
        threads=0.0033,
        size=3.7e6,
        beside=0.26,
        shard=0.0096,
        sends=0.135,
        weights=1.33e6,
    ),
    "PPO": Costs(
        moves=12_000,
        play=0.168,
        learn=0.60,
        hand_on=0.003,
        threads=0.003,
        size=23.6e6,
        beside=0.0,
        waits=True,
    ),
    "EXIT": _EXIT,
    LATE: replace(_EXIT, play=1.45, learn=0.078, match=0.0),
    "DISTIL": Costs(
        moves=2_000,
        play=0.335,
        learn=0.76,
        hand_on=0.0011,
        threads=0.0014,
        size=3.9e6,
        beside=0.06,
        own_pace=True,
    ),
}
"""On an AMD EPYC (AVX-512 with bfloat16); fragments of the default sizes."""


def games(experiment: str) -> dict[str, Any]:
    """The games of a named experiment, as an environment takes them."""
    from battlesnake_rl.mabs import experiments

    said = experiments.read(experiment)
    names = "observation", "action_mask", "rewards"
    return {"num_snakes": said["num_snakes"]} | {name: said[name] for name in names if name in said}


def training(name: str, runners: int) -> Any:
    """An algorithm that trains as its experiment does, but with shorter iterations."""
    from battlesnake_rl.mabs import algorithms

    algorithm = name.split(",")[0]
    named = {"DISTIL": "duel-distil", "PPO": "duel-ppo"}.get(algorithm)
    config = algorithms.configure(algorithm, games(named) if named else {})
    config.env_runners(num_env_runners=runners)
    config.debugging(seed=1, log_level="ERROR")
    if algorithm == "EXIT":
        short = {"moves_per_iteration": 40_000, "moves_per_fragment": 1_500, "match_pairs": 0, "ladder_cpu_fraction": 0.0}
        late = {"deep_search_after_moves": 1, "buffer_iterations": 8} if name == LATE else {}
        config.settings = replace(config.settings, **short, **late)
        return config.build_algo()
    config.ladder_cpu_fraction = 0.0
    config.reporting(min_time_s_per_iteration=0.5, min_sample_timesteps_per_iteration=0)
    if name == APEX:
        config.training(training_intensity=0.25)
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

    def seen(self, results: dict[str, Any]) -> dict[str, float]:
        """All sums up to now."""
        runners = results.get("env_runners", {})
        searched = runners.get("num_env_steps_sampled_lifetime", 0)
        moves = runners.get("num_agent_steps_sampled_lifetime", {"default_agent": searched})
        own = psutil.Process()
        sums = {
            "learning": self.learning,
            "steps": self.steps,
            "fragments": self.fragments,
            "moves": float(moves["default_agent"]),
            "thread": time.thread_time(),
            "clock": time.monotonic(),
            **dict.fromkeys(("driver", "Runner", "Shard", "Ray"), 0.0),
        }
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
    seen = {name: after - before[name] for name, after in spent.seen(results).items()}
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
        match=0.0,
    )


def measure(names: list[str], counts: list[int], seconds: float) -> None:
    """Print what each number of runners does, and what should follow from the costs of these."""
    import ray
    import torch

    torch.set_num_threads(1)
    ray.init("local", num_cpus=4 + max(counts), include_dashboard=False, log_to_driver=False)
    print("| training | runners | moves a second | calculated | of it |\n|---|---:|---:|---:|---:|")
    for name in names:
        seen = {runners: measured(name, runners, seconds) for runners in counts}
        (_, one), (_, many) = seen[counts[0]], seen[counts[-1]]
        dearer = many.play / many.moves / (one.play / one.moves)
        beside = (dearer - 1) / math.log(counts[-1] / counts[0]) if len(counts) > 1 else 0.0
        costs = replace(one, beside=beside, together=counts[-1])
        for runners, (rate, _) in seen.items():
            wanted = costs.rate(runners)
            print(f"| {name} | {runners} | {rate:,.0f} | {wanted:,.0f} | {rate / wanted:.0%} |")
        print(costs, flush=True)
    os._exit(0)  # Ray's end would take longer


def tables() -> list[str]:
    """The two tables of docs/scaling.md: how much more is played, and what runners keep busy."""
    counts, parts = (2, 4, 8, 16, 100, 1000), [*next(iter(COSTS.values())).parts(1)][1:]
    more = [["training", "moves a second of one", *(f"{count:,}" for count in counts)]]
    full = [["training", *parts]]
    for name, costs in COSTS.items():
        one = costs.rate(1)
        more.append([name, f"{one:,.0f}", *(_short(costs.rate(count) / one) for count in counts)])
        most = [costs.full(part) for part in parts]
        full.append([name, *("" if runners >= _MANY else _short(runners) for runners in most)])
    lines = []
    for table in (more, full):
        table.insert(1, ["---", *["---:"] * (len(table[0]) - 1)])
        lines += [f"| {' | '.join(row)} |" for row in table] + [""]
    return lines[:-1]


def _short(number: float) -> str:
    """Two digits of it."""
    return f"{float(f'{number:.2g}'):,.15g}"


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
