"""What playing and learning cost each part of APEX: the figures that a large cluster is planned by.

    python -m benchmarks.scaling
    python -m benchmarks.scaling --rounds 15 --runners 1 2 4 8 16 --learners 0 1 2 4

First runners play without learning: how much they play for a second of their processor time, and
what a fragment costs those that count and store it. All of them are there from the beginning; in
each round the rows take turns, each with its own number of runners, and the rows are medians over
rounds, since a processor may be faster now and slower a minute later. Then some hand out the
fragment that they have played once, as fast as it is taken, so that the driver is as busy as it can
be. Then learners learn from what one runner has played. Games and network are those of
``training.py``. All times are CPU times, by process, because more processes than processors share
these. `docs/scaling.md` says what follows from the figures, and `cluster_simulation.py` what large
clusters would do.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from tqdm import tqdm

from benchmarks.cluster_simulation import Parts, simulate
from benchmarks.training import BATCH, Course, Setup, cpu_seconds_of, our_config, start_ray

PLAYING = """
| runners | agent-steps/CPU-s of a runner | of one at the same time | of all processes | simulated \
| driver, ms a fragment | shard, ms a fragment | agent-steps a fragment | bytes an agent-step |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""

HANDING_ON = """
| runners that only hand out | fragments a look | driver's Python, ms a fragment \
| with Ray's threads | shard, ms a fragment |
|---:|---:|---:|---:|---:|"""

LEARNING = """
| learner processes | batch of each | driver, ms an update | a learner, ms an update \
| all, ms a transition batch of 512 | updates/s with a core for each | transitions/s |
|---:|---:|---:|---:|---:|---:|---:|"""

WARM_UP = 3.0
"""CPU seconds of each runner, of whose first fragments everything is new, that do not count."""

CHANGING = 1.0
"""CPU seconds of all runners, after others have begun to play, that do not count."""

CORES = 2
"""Of the machine that is simulated beside the measurement."""


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

    @property
    def pace(self) -> float:
        """Agent-steps for a second of the runners' CPU time."""
        return self.agent_steps / self.runner_seconds


def _config(runners: int) -> Any:
    return our_config(Setup("APEX", replay_ratio=2.0, runners=runners))


def _course(config: Any) -> Course:
    """With iterations as long as they are by default."""
    return Course(config, min_time_s_per_iteration=config.min_time_s_per_iteration)


def play(counts: Sequence[int], cpu_seconds: float, rounds: int) -> dict[int, list[Figures]]:
    """In each round let each of ``counts`` runners play in turn, some ``cpu_seconds`` in all."""
    course = _course(_config(max(counts)))
    algorithm = course.algorithm
    pids = course.runners
    course.run(0, WARM_UP * max(counts))
    size = algorithm.env_runner_group.foreach_env_runner(
        lambda runner: _num_bytes(runner.sample()[0]), local_env_runner=False
    )[0]
    seen: dict[int, list[Figures]] = {count: [] for count in counts}
    with _counted(algorithm, "_store") as stored:
        for _ in tqdm(range(rounds), disable=None):
            for count in counts:
                _let_play(algorithm, count)
                course.runners = pids[:count]
                done = course.run(cpu_seconds, CHANGING, begin=stored.clear)
                seen[count].append(
                    Figures(
                        agent_steps=done["agent_steps"],
                        runner_seconds=done["cpu_runners"],
                        driver_seconds=done["cpu_driver"],
                        shard_seconds=done["cpu_shards"],
                        fragments=len(stored),
                        fragment_bytes=size,
                    )
                )
    algorithm.stop()
    return seen


def _let_play(algorithm: Any, count: int) -> None:
    """From now on the first ``count`` runners play; the others have handed over what they owe."""
    manager = algorithm.env_runner_group._worker_manager
    manager.healthy_actor_ids = lambda: list(range(1, count + 1))
    while any(request.runner > count for request in algorithm._requests.values()):
        algorithm._take_fragments(1.0)


@contextmanager
def _counted(owner: Any, name: str) -> Iterator[list[float]]:
    """A list that grows by one with each call of ``owner.name``."""
    calls: list[float] = []
    function: Callable[..., Any] = getattr(owner, name)

    def counted(*arguments: Any) -> Any:
        calls.append(time.thread_time())
        return function(*arguments)

    setattr(owner, name, counted)
    yield calls
    setattr(owner, name, function)


def hand_on(runners: int, cpu_seconds: float) -> str:
    """The line of what the driver takes at its limit."""

    from battlesnake_rl.mabs.dqn.runner import BatchedEnvRunner

    class Repeating(BatchedEnvRunner):
        """Plays a fragment once, and hands it out from then on."""

        kept: Any = None

        def sample_fragment(self) -> Any:
            if self.kept is None:
                self.kept = self.sample()[0]
            else:
                self._count(self.kept)
            steps = self.kept.num_agent_steps
            return self.kept, {"num_agent_steps": steps, "metrics": self.get_metrics()}

    config = _config(runners)
    config.env_runner_cls = Repeating
    course = _course(config)
    with (
        _counted(course.algorithm, "_store") as stored,
        _counted(course.algorithm, "training_step") as looks,
    ):

        def begin() -> None:
            stored.clear()
            looks.clear()

        done = course.run(cpu_seconds, begin=begin)
        count = len(stored)
        python = stored[-1] - stored[0]
        each = count / len(looks)
    course.algorithm.stop()
    return (
        f"| {runners} | {each:.1f} | {1e3 * python / count:.2f} "
        f"| {1e3 * done['cpu_driver'] / count:.2f} | {1e3 * done['cpu_shards'] / count:.2f} |"
    )


def learn(learners: int, batch: int, cpu_seconds: float) -> str:
    """The line of ``learners`` processes (0: in the driver), each with ``batch`` of a batch."""
    config = _config(1).learners(num_learners=learners)
    config.training(
        num_steps_sampled_before_learning_starts=2_000, train_batch_size_per_learner=batch
    )
    course = _course(config)
    algorithm = course.algorithm
    while not algorithm.train().get("learners"):
        pass
    while algorithm._requests:  # from here on no runner plays
        algorithm._take_fragments(1.0)
    pids = [
        answer.get() for answer in algorithm.learner_group.foreach_learner(lambda _: os.getpid())
    ]
    own = os.getpid()

    def spent() -> tuple[float, float]:
        of_learners = sum(cpu_seconds_of(pid) for pid in pids if pid != own)
        return time.process_time(), of_learners

    updates, (driver, of_learners) = 0, spent()
    while sum(spent()) - driver - of_learners < cpu_seconds:
        updates += algorithm._update()
    algorithm._report_updates()
    driver, of_learners = (
        (now - then) / updates for now, then in zip(spent(), (driver, of_learners), strict=True)
    )
    algorithm.stop()
    together = batch * max(learners, 1)
    longest = driver + of_learners / max(learners, 1)
    return (
        f"| {learners or 'in the driver'} | {batch} | {1e3 * driver:.1f} "
        f"| {1e3 * of_learners / max(learners, 1):.1f} "
        f"| {1e3 * (driver + of_learners) * BATCH / together:.1f} | {1 / longest:.1f} "
        f"| {together / longest:,.0f} |"
    )


def _num_bytes(arrays: Any) -> int:
    """Bytes of the arrays of a fragment or batch."""
    values = (getattr(arrays, field.name) for field in dataclasses.fields(arrays))
    return sum(getattr(value, "nbytes", 0) for value in values)


def parts_of(runners: int, seen: Figures) -> Parts:
    """What a simulation takes from a measurement, for a cluster of ``runners`` that only play."""
    return Parts(
        runners,
        shards=max(2, -(-runners // 8)),
        replay_ratio=0.0,
        cores=CORES,
        agent_steps=seen.agent_steps / seen.fragments,
        play=seen.runner_seconds / seen.fragments,
        hand_on=seen.driver_seconds / seen.fragments,
        step=0.0,
        store=seen.shard_seconds / seen.fragments,
    )


def playing_row(
    runners: int, seen: Sequence[Figures], first: Sequence[Figures], most: Sequence[Figures]
) -> str:
    """A line of the first table: medians, simulated from the costs of ``most`` runners."""
    simulated = simulate(parts_of(runners, _median(most)))
    shares = [one.pace / alone.pace for one, alone in zip(seen, first, strict=True)]
    figures = _median(seen)
    everybody = figures.runner_seconds + figures.driver_seconds + figures.shard_seconds
    return (
        f"| {runners} | {figures.pace:,.0f} | {median(shares):.2f} "
        f"({min(shares):.2f} to {max(shares):.2f}) "
        f"| {figures.agent_steps / everybody:,.0f} "
        f"| {simulated.agent_steps / simulated.cpu:,.0f} "
        f"| {1e3 * figures.driver_seconds / figures.fragments:.1f} "
        f"| {1e3 * figures.shard_seconds / figures.fragments:.1f} "
        f"| {figures.agent_steps / figures.fragments:,.0f} "
        f"| {figures.fragment_bytes * figures.fragments / figures.agent_steps:,.0f} |"
    )


def _median(seen: Sequence[Figures]) -> Figures:
    """The round in whose pace half of the others are."""
    return sorted(seen, key=lambda one: one.pace)[len(seen) // 2]


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=10, help="CPU time of all runners, or of learners"
    )
    parser.add_argument("--rounds", type=int, default=7, help="in which runners play")
    parser.add_argument("--runners", nargs="*", type=int, default=[1, 2, 4, 8, 16], metavar="N")
    parser.add_argument("--learners", nargs="*", type=int, default=[0, 1, 2, 4], metavar="N")
    parser.add_argument("--hand-out", nargs="*", type=int, default=[1, 4], metavar="N")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    start_ray(cpus=max([1, *arguments.runners, *arguments.learners, *arguments.hand_out]) + 2)
    if arguments.runners:
        print(PLAYING, flush=True)
        seen = play(arguments.runners, arguments.seconds, arguments.rounds)
        first, most = seen[arguments.runners[0]], seen[max(arguments.runners)]
        for runners, figures in seen.items():
            print(playing_row(runners, figures, first, most), flush=True)
    print(HANDING_ON, flush=True)
    for runners in arguments.hand_out:
        print(hand_on(runners, arguments.seconds), flush=True)
    print(LEARNING, flush=True)
    for learners in arguments.learners:
        batches = [BATCH] if learners < 2 else [BATCH, BATCH // learners]
        for batch in batches:
            print(learn(learners, batch, arguments.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
