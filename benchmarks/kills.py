"""What becomes of a job whose instances are killed or told to stop: a table of tries.

    sudo python -m benchmarks.kills --tries 20 --results kills.jsonl
    sudo python -m benchmarks.kills --tries 20 --results kills.jsonl --only APEX --instances 3

Each try goes into the file of results as a line of JSON when it is over, so that the same command
goes on after an interruption; the table at the end is of all tries in the file. A try is a job of
its own: it starts, trains, is told to stop or loses an instance, and ends. Each instance is a
process of the training script in a network namespace, which needs root, as in
``tests/sagemaker_rl/test_clusters.py``.

Stops: SIGTERM to the process groups of all instances, at a moment by chance. In order is a try
whose instances all end with status 143 within 120 s, and whose first instance leaves in
``model.tar.gz`` a checkpoint, and a policy with its card (of EXIT, the champion's evaluation,
which has its card within). Kills (``--kills``): kill -9 of all processes of the last instance; in
order is a try in which training goes on, the instance, started again, is ready within 60 s of its
start and plays, and all end in order. The load is what else runs there: it is told, not made.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sagemaker_rl.cluster.roles import STOPPED
from tests.sagemaker_rl.instances import TRAIN, Instance, Network, until
from tests.sagemaker_rl.test_clusters import ENDLESS, SMALL

PATIENCE = 2400
"""Seconds in which a job is trained for the first time, on a busy machine."""

STOP_SECONDS = 120.0
"""What SageMaker leaves a job that is told to stop."""

JOIN_SECONDS = 60.0
"""In which an instance that comes again shall be ready."""

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
    # By these bounds the first network becomes the champion, unless it loses every game.
    "EXIT": PLAIN
    | {
        "algorithm": "EXIT",
        f"{OF_RLLIB}moves": 1000,
        f"{OF_RLLIB}fragment": 500,
        f"{OF_RLLIB}first_epochs": 2,
        f"{OF_RLLIB}match_pairs": 2,
        f"{OF_RLLIB}match_positions": 10,
        f"{OF_RLLIB}elo0": -2000,
        f"{OF_RLLIB}elo1": -1000,
        f"{OF_RLLIB}ladder_share": 0.0,
    },
}

WANTED = {
    name: ["checkpoint/facts.json", "policy.onnx", "policy.json"] for name in ("APEX", "PPO")
} | {"EXIT": ["checkpoint/facts.json", "champion.evaluation"]}
"""What a job of each algorithm delivers."""


@dataclass(frozen=True)
class Try:
    """What came of one job."""

    kind: str
    """stop or kill."""
    algorithm: str
    instances: int
    in_order: bool
    seconds: float
    """From the signal to the end of all; of a kill, from the new start until it is ready."""
    load: float
    why_not: str = ""

    @property
    def job(self) -> tuple[str, str, int]:
        """What was tried."""
        return self.kind, self.algorithm, self.instances


def stop(everybody: list[Instance], algorithm: str) -> Try:
    """Start the job, let it train, and tell all of it to stop."""
    _train(everybody, algorithm)
    time.sleep(random.random() * 3)
    load = os.getloadavg()[0]
    seconds, wrong = _end(everybody, algorithm)
    return Try("stop", algorithm, len(everybody), not wrong, seconds, load, wrong)


def kill(everybody: list[Instance], algorithm: str) -> Try:
    """Kill the last instance of a job that trains, and start it again."""
    _train(everybody, algorithm)
    master, lost = everybody[0], everybody[-1]
    until(lost.works, PATIENCE, master)
    before = master.iterations
    lost.kill_all()
    until(lambda: master.iterations >= before + 2, PATIENCE, master)
    told = len(master.log)
    load, began = os.getloadavg()[0], time.monotonic()
    lost.start()
    until(lambda: f"{lost.folder.name} is ready" in master.log[told:], PATIENCE, master)
    seconds = time.monotonic() - began
    until(lost.works, PATIENCE, master)
    _, wrong = _end(everybody, algorithm)
    if seconds > JOIN_SECONDS:
        wrong += f" it was ready after {seconds:.0f} s"
    return Try("kill", algorithm, len(everybody), not wrong, seconds, load, wrong)


def _train(everybody: list[Instance], algorithm: str) -> None:
    """Start all, and let them train until there is something to deliver."""
    for one in everybody:
        one.start()
    master = everybody[0]
    until(lambda: master.iterations >= 2, PATIENCE, master)
    if algorithm == "EXIT":  # its first networks may not be as good as the hand-set weights
        saved = master.folder / "checkpoints"
        until(lambda: any(saved.glob("*/champion.evaluation")), PATIENCE, master)


def _end(everybody: list[Instance], algorithm: str) -> tuple[float, str]:
    """Tell all to stop; the seconds that it took, and what was not as wanted."""
    began = time.monotonic()
    for one in everybody:
        os.killpg(one.process.pid, signal.SIGTERM)
    statuses = [one.wait(PATIENCE) for one in everybody]
    seconds = time.monotonic() - began
    wrong = [] if set(statuses) == {STOPPED} else [f"statuses {statuses}"]
    missing = set(WANTED[algorithm]) - _delivered(everybody[0])
    wrong += [f"not in model.tar.gz: {name}" for name in sorted(missing)]
    if seconds > STOP_SECONDS:
        wrong.append(f"took {seconds:.0f} s")
    return seconds, "; ".join(wrong)


def _delivered(master: Instance) -> set[str]:
    """What is in the archive that SageMaker makes of the model's folder."""
    archive = master.folder / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(master.folder / "model", ".")
    with tarfile.open(archive) as packed:
        return {member.name.removeprefix("./") for member in packed if member.size > 0}


def main(argv: list[str] | None = None) -> int:
    """Try what is not in the file of results yet, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=20, help="tries of each job, in all")
    parser.add_argument("--results", type=Path, default=Path("kills.jsonl"), help="file of tries")
    parser.add_argument("--kills", action="store_true", help="kill an instance, not stop the job")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--instances", nargs="+", type=int, default=[1, 3])
    arguments = parser.parse_args(argv)
    if arguments.kills and min(arguments.instances) < 2:
        parser.error("--kills needs --instances of 2 or more: training goes on with the others")
    kind = "kill" if arguments.kills else "stop"
    try:
        for count in arguments.instances:
            # One of each in turn, so that an interruption leaves as many of each.
            for number in range(arguments.tries):
                for algorithm in arguments.only:
                    done = [one.job for one in read(arguments.results)]
                    if done.count((kind, algorithm, count)) <= number:
                        one = _try(kind, algorithm, count)
                        append(arguments.results, one)
                        print(one, flush=True)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    finally:
        print(table(read(arguments.results)))
    return 0


def _try(kind: str, algorithm: str, count: int) -> Try:
    settings = JOBS[algorithm] | {"num_iters": ENDLESS}
    hosts = [f"algo-{i + 1}" for i in range(count)]
    network = Network()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        try:
            everybody = network.open().job(Path(folder), TRAIN, hosts, settings, {})
            one = (stop if kind == "stop" else kill)(everybody, algorithm)
            if not one.in_order:
                print(everybody[0].log[-3000:], flush=True)
            return one
        finally:
            network.close()  # and all that runs there


def append(path: Path, one: Try) -> None:
    """Keep a try; several processes may write into one file."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(one)) + "\n")


def read(path: Path) -> list[Try]:
    """All tries so far."""
    if not path.exists():
        return []
    return [Try(**json.loads(line)) for line in path.read_text().splitlines()]


def table(tries: Iterable[Try]) -> str:
    """A row for each job.

    >>> print(table([Try("stop", "PPO", 1, True, 9.6, 20.2), Try("stop", "PPO", 1, False, 14, 22)]))
    | what | algorithm | instances | in order | seconds, median | longest | load |
    |---|---|---:|---:|---:|---:|---:|
    | stop | PPO | 1 | 1 of 2 | 12 | 14 | 20 to 22 |
    """
    rows: dict[tuple[str, str, int], list[Try]] = {}
    for one in tries:
        rows.setdefault(one.job, []).append(one)
    lines = [
        "| what | algorithm | instances | in order | seconds, median | longest | load |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (kind, algorithm, count), row in sorted(rows.items()):
        seconds, loads = [one.seconds for one in row], [one.load for one in row]
        lines.append(
            f"| {kind} | {algorithm} | {count} | {sum(one.in_order for one in row)} of {len(row)} "
            f"| {statistics.median(seconds):.0f} | {max(seconds):.0f} "
            f"| {min(loads):.0f} to {max(loads):.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
