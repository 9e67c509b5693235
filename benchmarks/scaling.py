"""What playing and learning cost each part of APEX: the figures that a large cluster is planned by.

    python -m benchmarks.scaling
    python -m benchmarks.scaling --seconds 60 --runners 1 2 4 8

First 1, 2 and 4 runners play without learning: how much they play for a second of their processor
time, and what a fragment costs those that count and store it. Then one runner plays for a learner
that learns as fast as it can (a replay ratio of 2): what an update and the drawing of its batch
cost. Games and network are those of ``training.py``. All times are CPU times, by process, because
more runners than processors share these. `docs/scaling.md` says what follows from the figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import warnings
from typing import Any

from benchmarks.training import BATCH, Course, Setup, our_config, start_ray

PLAYING = """
| runners | agent-steps/CPU-s of a runner | of all processes | driver, ms a fragment \
| shard, ms a fragment | agent-steps a fragment | bytes an agent-step |
|---:|---:|---:|---:|---:|---:|---:|"""

LEARNING = """
| update, ms of the learner | updates/CPU-s | batch, ms of the shard | bytes a batch \
| bytes of weights |
|---:|---:|---:|---:|---:|"""


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was seen; times are CPU-seconds, sizes bytes of arrays."""

    agent_steps: float
    runner_seconds: float
    driver_seconds: float
    """Of the process that counts and learns."""
    shard_seconds: float
    fragments: float
    fragment_bytes: float
    updates: float
    batch_bytes: float
    weights_bytes: float


def measure(runners: int, learn: bool, cpu_seconds: float) -> Figures:
    """Have so many runners play for ``cpu_seconds`` of all processes together."""
    import ray

    config = our_config(Setup("APEX", replay_ratio=2.0, runners=runners))
    if learn:
        config.training(num_steps_sampled_before_learning_starts=2_000)
    course = Course(config)
    algorithm = course.algorithm
    while learn and not algorithm.train().get("learners"):
        pass
    taken = _steps_of_fragments(algorithm)
    done = course.run(cpu_seconds)
    figures = Figures(
        agent_steps=done["agent_steps"],
        runner_seconds=done["cpu_runners"],
        driver_seconds=done["cpu_driver"],
        shard_seconds=done["cpu_shards"],
        fragments=done["agent_steps"] * len(taken) / sum(taken),
        fragment_bytes=algorithm.env_runner_group.foreach_env_runner(
            lambda runner: _num_bytes(runner.sample()[0]), local_env_runner=False
        )[0],
        updates=done["trained"] / BATCH,
        batch_bytes=_num_bytes(ray.get(algorithm._shards[0].sample.remote(BATCH))),
        weights_bytes=sum(
            array.nbytes for array in algorithm._weights()["rl_module"]["default_policy"].values()
        ),
    )
    algorithm.stop()
    return figures


def _steps_of_fragments(algorithm: Any) -> list[int]:
    """A list that grows by the agent-steps of each fragment that is taken from now on."""
    taken: list[int] = []
    owe = algorithm._owe

    def noted(agent_steps: int) -> None:
        taken.append(agent_steps)
        owe(agent_steps)

    algorithm._owe = noted
    return taken


def _num_bytes(arrays: Any) -> int:
    """Bytes of the arrays of a fragment or batch."""
    values = (getattr(arrays, field.name) for field in dataclasses.fields(arrays))
    return sum(getattr(value, "nbytes", 0) for value in values)


def playing_row(runners: int, seen: Figures) -> str:
    """A line of the first table."""
    everybody = seen.runner_seconds + seen.driver_seconds + seen.shard_seconds
    return (
        f"| {runners} | {seen.agent_steps / seen.runner_seconds:,.0f} "
        f"| {seen.agent_steps / everybody:,.0f} "
        f"| {1e3 * seen.driver_seconds / seen.fragments:.1f} "
        f"| {1e3 * seen.shard_seconds / seen.fragments:.1f} "
        f"| {seen.agent_steps / seen.fragments:,.0f} "
        f"| {seen.fragment_bytes * seen.fragments / seen.agent_steps:,.0f} |"
    )


def learning_row(seen: Figures, playing: Figures) -> str:
    """The line of the second table: what learning adds to what ``playing`` cost a fragment."""
    driver = seen.driver_seconds - playing.driver_seconds / playing.fragments * seen.fragments
    shard = seen.shard_seconds - playing.shard_seconds / playing.fragments * seen.fragments
    return (
        f"| {1e3 * driver / seen.updates:.1f} | {seen.updates / driver:.1f} "
        f"| {1e3 * shard / seen.updates:.1f} | {seen.batch_bytes:,.0f} "
        f"| {seen.weights_bytes:,.0f} |"
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30, help="CPU time of each measurement")
    parser.add_argument("--runners", nargs="+", type=int, default=[1, 2, 4], metavar="N")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    start_ray(cpus=max(arguments.runners) + 1)
    print(PLAYING, flush=True)
    playing = {}
    for runners in arguments.runners:
        playing[runners] = measure(runners, learn=False, cpu_seconds=arguments.seconds)
        print(playing_row(runners, playing[runners]), flush=True)
    print(LEARNING, flush=True)
    learning = measure(1, learn=True, cpu_seconds=arguments.seconds)
    print(learning_row(learning, playing[arguments.runners[0]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
