"""What becomes of a job whose instances are killed or told to stop: a table of tries.

    sudo python -m benchmarks.kills --stops 20 --kills 1
    sudo python -m benchmarks.kills --only APEX --instances 3

Each instance is a process of the training script in a network namespace of its own, as in
``tests/sagemaker_rl/test_clusters.py``, which needs root. Stops: SIGTERM to the process groups of
all instances, at a moment by chance; what counts is the exit status, and that there are a
checkpoint and what was trained. Kills: kill -9 of all processes of one instance but the first;
what counts is when training goes on, and when the instance, started again, plays again. The load
of the machine is what else runs there: it is told, not made.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sagemaker_rl.instances import TRAIN, Instance, Network, until
from tests.sagemaker_rl.test_clusters import ENDLESS, SMALL

PATIENCE = 2400
"""Seconds in which a job is trained for the first time, on a busy machine."""

PLAIN = {key: SMALL[key] for key in ("seed", "checkpoint_minutes", "rl_join_minutes")}
GAMES = {key: SMALL[key] for key in ("num_agents", "map_size")}
OF_RLLIB = "rl.training.config."
JOBS: dict[str, dict[str, Any]] = {
    "APEX": SMALL,
    "PPO": PLAIN
    | GAMES
    | {
        "algorithm": "PPO",
        f"{OF_RLLIB}num_envs_per_env_runner": 4,
        f"{OF_RLLIB}train_batch_size_per_learner": 128,
        f"{OF_RLLIB}minibatch_size": 64,
        f"{OF_RLLIB}num_epochs": 1,
        f"{OF_RLLIB}model_config.channels": [8],
        f"{OF_RLLIB}model_config.strides": [2],
    },
    "EXIT": PLAIN
    | {
        "algorithm": "EXIT",
        f"{OF_RLLIB}moves": 2000,
        f"{OF_RLLIB}fragment": 500,
        f"{OF_RLLIB}match_pairs": 2,
        f"{OF_RLLIB}ladder_share": 0.0,
    },
}


@dataclass(frozen=True)
class Stop:
    """What came of one SIGTERM."""

    statuses: list[int]
    seconds: float
    delivered: list[str]
    """What was wanted and is there."""
    load: float

    @property
    def in_order(self) -> bool:
        """Whether everybody ended as told and the first instance has delivered."""
        return set(self.statuses) == {143} and len(self.delivered) == 2


def stop(everybody: list[Instance], algorithm: str) -> Stop:
    """Start the job, let it train, and tell all of it to stop."""
    _train(everybody)
    time.sleep(random.random() * 3)
    load, began = os.getloadavg()[0], time.monotonic()
    for one in everybody:
        os.killpg(one.process.pid, signal.SIGTERM)
    statuses = [one.wait(PATIENCE) for one in everybody]
    model = everybody[0].folder / "model"
    wanted = ["checkpoint/facts.json", "policy.onnx"]
    if algorithm == "EXIT":
        # A champion that there may not be yet; its card is within.
        wanted[1] = "champion.evaluation"
    elif not (model / "policy.json").exists():
        wanted[1] = "policy.json"
    delivered = [name for name in wanted if (model / name).exists()]
    if algorithm == "EXIT" and "none, since no network was as good" in everybody[0].log:
        delivered.append("no champion yet, and said so")
    return Stop(statuses, time.monotonic() - began, delivered, load)


def kill(everybody: list[Instance]) -> str:
    """Kill the last instance of a job that trains, start it again; the cells of its row."""
    _train(everybody)
    master, lost = everybody[0], everybody[-1]
    until(lambda: _plays(lost), PATIENCE, master)
    before = master.iterations
    lost.kill_all()
    began = time.monotonic()
    until(lambda: master.iterations >= before + 2, PATIENCE, master)
    on = time.monotonic() - began
    lost.start()
    began = time.monotonic()
    until(lambda: "has joined" in lost.log, PATIENCE, master)
    joined = time.monotonic() - began
    until(lambda: _plays(lost), PATIENCE, master)
    plays = time.monotonic() - began
    for one in everybody:
        os.killpg(one.process.pid, signal.SIGTERM)
    statuses = [one.wait(PATIENCE) for one in everybody]
    return f"{on:.0f} | {joined:.0f} | {plays:.0f} | {statuses} | {os.getloadavg()[0]:.0f}"


def _train(everybody: list[Instance]) -> None:
    for one in everybody:
        one.start()
    until(lambda: everybody[0].iterations >= 2, PATIENCE, everybody[0])


def _plays(one: Instance) -> bool:
    """Whether an actor or task runs there."""
    for pid in one.pids():
        try:
            name = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue  # it has ended meanwhile
        if name.startswith("ray::") and not name.startswith("ray::IDLE"):
            return True
    return False


def _instances(network: Network, folder: Path, algorithm: str, count: int) -> list[Instance]:
    settings = JOBS[algorithm] | {"num_iters": ENDLESS}
    return network.job(folder, TRAIN, [f"algo-{i + 1}" for i in range(count)], settings, {})


def main(argv: list[str] | None = None) -> int:
    """Try, and print a line of the table after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stops", type=int, default=20, help="tries of each job")
    parser.add_argument("--kills", type=int, default=1, help="tries of each job of several")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--instances", nargs="+", type=int, default=[1, 3])
    arguments = parser.parse_args(argv)
    network = Network().open()
    try:
        for algorithm in arguments.only:
            for count in arguments.instances:
                with tempfile.TemporaryDirectory(prefix="kills-") as folder:
                    _try(network, Path(folder), algorithm, count, arguments)
    finally:
        network.close()
    return 0


def _try(
    network: Network, folder: Path, algorithm: str, count: int, arguments: argparse.Namespace
) -> None:
    everybody = _instances(network, folder, algorithm, count)
    hosts = [one.folder.name for one in everybody]

    def anew(name: str) -> list[Instance]:
        for one, host in zip(everybody, hosts, strict=True):
            one.folder = folder / name / host
        return everybody

    stops = []
    for number in range(arguments.stops):
        one = stop(anew(f"stop-{number}"), algorithm)
        stops.append(one)
        if not one.in_order:
            print(f"{algorithm} x {count}: {one}\n{everybody[0].log[-2000:]}", flush=True)
        seconds = [one.seconds for one in stops]
        print(
            f"| {algorithm} | {count} | {sum(one.in_order for one in stops)} of {len(stops)} "
            f"| {statistics.median(seconds):.0f} | {max(seconds):.0f} "
            f"| {min(one.load for one in stops):.0f} to {max(one.load for one in stops):.0f} |",
            flush=True,
        )
    for number in range(arguments.kills if count > 1 else 0):
        print(f"| {algorithm} | {count} | {kill(anew(f'kill-{number}'))} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
