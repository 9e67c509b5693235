"""Train on instances that are held to a quarter of a core each: what more of them buy, rehearsed.

    python -m benchmarks.throttled_instances 1 1 --experiment champion --minutes 8 --name one
    python -m benchmarks.throttled_instances 3 3 --experiment champion --minutes 8 --name three
    python -m benchmarks.throttled_instances 3 2 --experiment duel-distil --minutes 13 --name three

The numbers are instances and runners; what follows is `battlesnake-gym train`'s. The first instance
learns, and each of the others has a runner; runners beyond these play on the first. It needs root
and cgroups of version 1. Where there are runners, Ray starts on whole cores.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

_GROUPS = Path("/sys/fs/cgroup/cpu")
_SHARE = 0.25
"""Of a core, for an instance."""
_TRAIN = """
import sys
from battlesnake_gym.cli.main import main
from sagemaker_rl import ray_launcher
ray_launcher.local_cpus = lambda: 64
sys.exit(main())
"""
"""As if there were a CPU for each runner."""


def hold(group: Path) -> None:
    """Let the processes of a group have `_SHARE` of a core."""
    (group / "cpu.cfs_quota_us").write_text(
        f"{_SHARE * int((group / 'cpu.cfs_period_us').read_text()):.0f}"
    )


def runners(training: psutil.Process) -> list[int]:
    """The processes of the runners that are there."""
    try:
        family = training.children(recursive=True)
        return [one.pid for one in family if "Runner" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def main() -> int:
    """Train, with each instance in a group of its own; the status of the training."""
    instances, wanted, *options = sys.argv[1:]
    groups = [_GROUPS / f"instance-{os.getpid()}-{number}" for number in range(int(instances))]
    for group in groups:
        group.mkdir()
    (groups[0] / "cgroup.procs").write_text(str(os.getpid()))
    command = [sys.executable, "-c", _TRAIN, "train", "--num-env-runners", wanted, *options]
    training = subprocess.Popen(command, env=os.environ | {"RAY_worker_niceness": "0"})
    try:
        while training.poll() is None and len(runners(psutil.Process(training.pid))) < int(wanted):
            time.sleep(1)
        for group, runner in zip(groups[1:], runners(psutil.Process(training.pid)), strict=False):
            (group / "cgroup.procs").write_text(str(runner))
        for group in groups:
            hold(group)
        print(f"{instances} instances are held to {_SHARE} of a core each", flush=True)
        return training.wait()
    finally:
        (_GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        for group in groups:
            with contextlib.suppress(OSError):  # Ray's last processes end later
                group.rmdir()


if __name__ == "__main__":
    sys.exit(main())
