"""Train on simulated instances, each throttled to a quarter of a core.

    python -m benchmarks.throttled_instances 1 1 --experiment champion --minutes 8 --name one
    python -m benchmarks.throttled_instances 3 3 --experiment champion --minutes 8 --name three
    python -m benchmarks.throttled_instances 3 2 --experiment duel-distil --minutes 13 --name three

The two positional arguments are the numbers of instances and env runners. All other arguments are
arguments of `battlesnake-gym train`. The first instance runs the learner, and every other instance
runs one env runner. Further env runners run on the first instance. The benchmark requires root and
cgroups version 1. Throttling starts when all env runners have started.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

_CGROUP_FOLDER = Path("/sys/fs/cgroup/cpu")
_CPU_FRACTION = 0.25
"""CPU limit of an instance, as a fraction of a core."""
_TRAINING_SCRIPT = """
import sys
from battlesnake_gym.cli.main import main
from sagemaker_rl.runs import launch
launch.num_local_cpus = lambda: 64
sys.exit(main())
"""
"""Training script that reports enough CPUs for all env runners."""


def _throttle(group: Path) -> None:
    """Throttle the processes of a control group to `_CPU_FRACTION` of a core."""
    (group / "cpu.cfs_quota_us").write_text(
        f"{_CPU_FRACTION * int((group / 'cpu.cfs_period_us').read_text()):.0f}"
    )


def _env_runner_pids(training: psutil.Process) -> list[int]:
    """Return the process ids of the env runners that are running."""
    try:
        family = training.children(recursive=True)
        return [one.pid for one in family if "Runner" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def main() -> int:
    """Run a training with one control group per instance.

    Returns:
        The exit status of the training.
    """
    instances, num_env_runners, *options = sys.argv[1:]
    groups = [
        _CGROUP_FOLDER / f"instance-{os.getpid()}-{number}" for number in range(int(instances))
    ]
    for group in groups:
        group.mkdir()
    (groups[0] / "cgroup.procs").write_text(str(os.getpid()))
    command = [
        sys.executable,
        "-c",
        _TRAINING_SCRIPT,
        "train",
        "--num-env-runners",
        num_env_runners,
        *options,
    ]
    training = subprocess.Popen(command, env=os.environ | {"RAY_worker_niceness": "0"})
    try:
        while training.poll() is None and len(_env_runner_pids(psutil.Process(training.pid))) < int(
            num_env_runners
        ):
            time.sleep(1)
        for group, runner in zip(
            groups[1:], _env_runner_pids(psutil.Process(training.pid)), strict=False
        ):
            (group / "cgroup.procs").write_text(str(runner))
        for group in groups:
            _throttle(group)
        print(f"{instances} instances are throttled to {_CPU_FRACTION} of a core each", flush=True)
        return training.wait()
    finally:
        (_CGROUP_FOLDER / "cgroup.procs").write_text(str(os.getpid()))
        for group in groups:
            with contextlib.suppress(OSError):  # The last processes of Ray exit later.
                group.rmdir()


if __name__ == "__main__":
    sys.exit(main())
