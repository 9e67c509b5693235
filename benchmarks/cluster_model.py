"""Model the training rate as a function of the number of env runners.

    python -m benchmarks.cluster_model                              # tables of the scaling report
    python -m benchmarks.cluster_model --measure 1 2 4 --seconds 8  # on this machine

With ``--measure``, the benchmark measures the costs of the model. The benchmark trains with each
number of env runners, one after the other. The model calculates the rate for all numbers from the
CPU time of every process with the first and the last number. The benchmark prints the measured and
the calculated rates. The comparison is meaningful only if every env runner has its own core and two
more cores are free.
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

_UNLIMITED_RUNNERS = 1e5
"""Number of env runners that counts as unlimited."""
_NETWORK_BYTES_PER_S = 1.25e9
"""Network bandwidth between two machines: 10 Gbit/s, in bytes per second."""
_RUNNERS_PER_SHARD = 8
"""Env runners per replay buffer shard. There are at least two shards."""


@dataclass(frozen=True)
class FragmentCosts:
    """Costs of one fragment, in CPU seconds or bytes."""

    moves: float
    """Number of moves in a fragment.

    The moves are the learner's moves or, with EXIT, searched moves.
    """
    play: float
    """CPU time of an env runner for one fragment, in seconds."""
    learn: float
    """CPU time of the learner thread for updates, in seconds."""
    overhead: float
    """CPU time of the learner thread for all other work, in seconds."""
    threads: float
    """CPU time of Ray's threads in the learner's process, in seconds."""
    size: float
    """Size of the fragment that the env runner sends, in bytes."""
    contention: float
    """Slowdown of an env runner by other env runners on the same machine.

    An env runner is slower by the factor 1 + ``contention`` * ln(env runners on the machine).
    """
    shard: float = 0.0
    """CPU time of a replay buffer shard, in seconds."""
    match: float = 0.0
    """CPU time of the env runners in matches, in seconds.

    The learner waits for the matches.
    """
    sends: float = 0.0
    """Number of weight updates that the learner sends to all env runners."""
    waits: bool = False
    """Whether env runners and the learner wait for each other (synchronous sampling)."""
    own_pace: bool = False
    """Whether the learner makes updates at its own rate, independent of fragments.

    ``learn`` is then the duration of one update, in seconds.
    """
    call: float = 5.8e-5
    """CPU time of the learner thread to send weights to one env runner, in seconds."""
    weights: float = 1.2e6
    """Size of the weights that the learner sends to each machine, in bytes."""
    runners_per_machine: int = 8
    """Number of env runners on each machine."""

    def component_seconds(self, runners: float) -> dict[str, float]:
        """Return the duration of each component per fragment, in seconds."""
        play = (
            self.play
            * (1 + self.contention * math.log(max(min(runners, self.runners_per_machine), 1)))
            / runners
        )
        sends = self.sends
        if self.waits:
            sends = 1 / runners
        if self.own_pace:
            sends = play / self.learn
        return {
            "runners": play,
            "learning": 0.0 if self.own_pace else self.learn,
            "fragments": self.overhead,
            "calls": self.call * runners * sends,
            "Ray's threads": self.threads,
            "shards": self.shard / max(2, -(-runners // _RUNNERS_PER_SHARD)),
            "network in": self.size / _NETWORK_BYTES_PER_S,
            "network out": self.weights
            * sends
            * -(-runners // self.runners_per_machine)
            / _NETWORK_BYTES_PER_S,
        }

    def moves_per_second(self, runners: int) -> float:
        """Return the number of moves per second with ``runners`` env runners."""
        parts = self.component_seconds(runners)
        thread = sum(parts.pop(name) for name in ("learning", "fragments", "calls"))
        if self.waits:
            return self.moves / (parts["runners"] + thread)
        return self.moves / (max(thread, *parts.values()) + self.match / runners)

    def saturating_runners(self, component: str) -> float:
        """Return the number of env runners that saturate the component ``component``."""
        runners = 0.1
        while (
            runners < _UNLIMITED_RUNNERS
            and self.component_seconds(runners)[component]
            < self.component_seconds(runners)["runners"]
        ):
            runners *= 1.01
        return runners


APEX_NAME = "APEX, replay ratio 0.25"
LATE_EXIT_NAME = "EXIT, late games"
_EXIT_COSTS = FragmentCosts(
    moves=6_000,
    play=0.285,
    learn=0.149,
    overhead=0.002,
    threads=0.002,
    size=1.2e6,
    contention=0.27,
    match=0.096,
)
MEASURED_COSTS = {
    APEX_NAME: FragmentCosts(
        moves=2_820,
        play=0.042,
        learn=0.035,
        overhead=0.0018,
        threads=0.0033,
        size=3.7e6,
        contention=0.26,
        shard=0.0096,
        sends=0.135,
        weights=1.33e6,
    ),
    "PPO": FragmentCosts(
        moves=12_000,
        play=0.168,
        learn=0.60,
        overhead=0.003,
        threads=0.003,
        size=23.6e6,
        contention=0.0,
        waits=True,
    ),
    "EXIT": _EXIT_COSTS,
    LATE_EXIT_NAME: replace(_EXIT_COSTS, play=1.45, learn=0.078, match=0.0),
    "DISTIL": FragmentCosts(
        moves=2_000,
        play=0.335,
        learn=0.76,
        overhead=0.0011,
        threads=0.0014,
        size=3.9e6,
        contention=0.06,
        own_pace=True,
    ),
}
"""Costs measured on an AMD EPYC (AVX-512 with bfloat16).

Fragments have the default sizes.
"""


def _environment_settings(experiment: str) -> dict[str, Any]:
    """Return the environment settings of a named experiment."""
    from battlesnake_rl.mabs import experiments

    settings = experiments.load_experiment(experiment)
    names = "observation", "action_mask", "rewards"
    return {"num_snakes": settings["num_snakes"]} | {
        name: settings[name] for name in names if name in settings
    }


def build_algorithm(name: str, runners: int) -> Any:
    """Build the algorithm of a training for the benchmark, with shorter iterations."""
    from battlesnake_rl.mabs import algorithms

    algorithm = name.split(",")[0]
    named = {"DISTIL": "duel-distil", "PPO": "duel-ppo"}.get(algorithm)
    config = algorithms.configure(algorithm, _environment_settings(named) if named else {})
    config.env_runners(num_env_runners=runners)
    config.debugging(seed=1, log_level="ERROR")
    if algorithm == "EXIT":
        short = {
            "moves_per_iteration": 40_000,
            "moves_per_fragment": 1_500,
            "match_pairs": 0,
            "ladder_cpu_fraction": 0.0,
        }
        late = (
            {"deep_search_after_moves": 1, "buffer_iterations": 8} if name == LATE_EXIT_NAME else {}
        )
        config.settings = replace(config.settings, **short, **late)
        return config.build_algo()
    config.ladder_cpu_fraction = 0.0
    config.reporting(min_time_s_per_iteration=0.5, min_sample_timesteps_per_iteration=0)
    if name == APEX_NAME:
        config.training(training_intensity=0.25)
    return config.build_algo()


class _CostCounter:
    """Counters of an algorithm: CPU seconds of each process type, fragments and moves."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm
        self.learning = self.steps = self.fragments = 0.0
        for name in ("_run_update", "_update_learner", "_fit_model", "_buffer_samples"):
            self._wrap_method(name, self._record_updates)
        sampling = ("_store_fragments", "_collect_fragments", "_sample_fragments", "_collect")
        for name in sampling:
            self._wrap_method(name, self._record_fragments)

    def _wrap_method(self, name: str, note: Callable[[float, Any], None]) -> None:
        """Replace a method of the algorithm by a wrapper.

        The wrapper reports each call to ``note``.
        """
        inner = getattr(self._algorithm, name, None)
        if inner is None:
            return

        def timed_method(*args: Any) -> Any:
            began = time.thread_time()
            result = inner(*args)
            note(time.thread_time() - began, result)
            return result

        setattr(self._algorithm, name, timed_method)

    def _record_updates(self, seconds: float, result: Any) -> None:
        """Add the CPU seconds of an update of the learner."""
        self.learning += seconds
        self.steps += 1

    def _record_fragments(self, seconds: float, result: Any) -> None:
        """Add the number of fragments that the learner received."""
        self.fragments += len(result)

    def totals(self, results: dict[str, Any]) -> dict[str, float]:
        """Return the current value of every counter."""
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


def _measure_costs(name: str, runners: int, seconds: float) -> tuple[float, FragmentCosts]:
    """Measure a training.

    Returns:
        The number of moves per second of wall-clock time, and the measured costs.
    """
    algorithm = build_algorithm(name, runners)
    spent = _CostCounter(algorithm)
    until = time.monotonic() + seconds / 3
    results = algorithm.train()
    while time.monotonic() < until:
        results = algorithm.train()
    before = spent.totals(results)
    while time.monotonic() < before["clock"] + seconds:
        results = algorithm.train()
    totals = {name: after - before[name] for name, after in spent.totals(results).items()}
    algorithm.stop()
    fragments, own_pace = totals["fragments"], name == "DISTIL"
    return totals["moves"] / totals["clock"], replace(
        MEASURED_COSTS[name],
        moves=totals["moves"] / fragments,
        play=totals["Runner"] / fragments,
        learn=totals["learning"] / (totals["steps"] if own_pace else fragments),
        overhead=(totals["thread"] - totals["learning"]) / fragments,
        threads=(totals["driver"] - totals["thread"]) / fragments,
        shard=totals["Shard"] / fragments,
        match=0.0,
    )


def _print_measurements(names: list[str], counts: list[int], seconds: float) -> None:
    """Print the measured and the calculated rate for each number in ``counts``.

    Args:
        names: Names of the algorithms.
        counts: Numbers of env runners.
        seconds: Duration of each measurement, in seconds.
    """
    import ray
    import torch

    torch.set_num_threads(1)
    ray.init("local", num_cpus=4 + max(counts), include_dashboard=False, log_to_driver=False)
    print(
        "| training | env runners | moves per second | calculated | ratio |\n"
        "|---|---:|---:|---:|---:|"
    )
    for name in names:
        totals = {runners: _measure_costs(name, runners, seconds) for runners in counts}
        (_, one), (_, many) = totals[counts[0]], totals[counts[-1]]
        slowdown = many.play / many.moves / (one.play / one.moves)
        contention = (slowdown - 1) / math.log(counts[-1] / counts[0]) if len(counts) > 1 else 0.0
        costs = replace(one, contention=contention, runners_per_machine=counts[-1])
        for runners, (rate, _) in totals.items():
            wanted = costs.moves_per_second(runners)
            print(f"| {name} | {runners} | {rate:,.0f} | {wanted:,.0f} | {rate / wanted:.0%} |")
        print(costs, flush=True)
    os._exit(0)  # An immediate exit is faster than the shutdown of Ray.


def _format_tables() -> list[str]:
    """Format the two tables of docs/how-to/run-on-several-machines.md.

    The tables contain speedups and numbers of saturating env runners.
    """
    counts, parts = (
        (2, 4, 8, 16, 100, 1000),
        [*next(iter(MEASURED_COSTS.values())).component_seconds(1)][1:],
    )
    speedup = [["training", "moves per second with 1", *(f"{count:,}" for count in counts)]]
    saturating = [["training", *parts]]
    for name, costs in MEASURED_COSTS.items():
        one = costs.moves_per_second(1)
        speedup.append(
            [
                name,
                f"{one:,.0f}",
                *(_format_number(costs.moves_per_second(count) / one) for count in counts),
            ]
        )
        most = [costs.saturating_runners(part) for part in parts]
        saturating.append(
            [
                name,
                *(
                    "" if runners >= _UNLIMITED_RUNNERS else _format_number(runners)
                    for runners in most
                ),
            ]
        )
    lines = []
    for table in (speedup, saturating):
        header, *rows = [f"| {' | '.join(row)} |" for row in table]
        lines += [header, "|---|" + "---:|" * (len(table[0]) - 1), *rows, ""]
    return lines[:-1]


def _format_number(number: float) -> str:
    """Format a number with two significant digits."""
    return f"{float(f'{number:.2g}'):,.15g}"


def main() -> None:
    """Print the tables, or run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--measure",
        type=int,
        nargs="*",
        default=[],
        metavar="ENV_RUNNERS",
        help="numbers of env runners to measure, in ascending order",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=8,
        help="duration of a measurement, in seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=list(MEASURED_COSTS),
        choices=MEASURED_COSTS,
        help="names of the trainings to measure (default: all)",
    )
    arguments = parser.parse_args()
    if not arguments.measure:
        print("\n".join(_format_tables()))
        return
    _print_measurements(arguments.only, arguments.measure, arguments.seconds)


if __name__ == "__main__":
    main()
