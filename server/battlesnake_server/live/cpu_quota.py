"""The processor that is really there: the cores that a process sees, and its share of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

_CGROUP_ROOT, _PROC_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_LAMBDA_MEMORY = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
_LAMBDA_MB_PER_CORE = 1769
"""MB of memory that give a function on AWS Lambda one core's time. It sees two cores all the same.
Source: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html"""


def available_cores(
    groups: Path = _CGROUP_ROOT,
    own: Path = _PROC_CGROUP,
    environment: Mapping[str, str] = os.environ,
) -> float:
    """Seconds of processor that this process is given in a second, as far as the system says so.

    The least of the cores it is bound to, the quotas of its control groups (version 1 and 2, of a
    container or a unit of systemd) and what AWS Lambda gives for its memory.
    """
    bound = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    shares = [float(bound), *_quotas(groups, own)]
    with suppress(KeyError, ValueError):
        shares.append(int(environment[_LAMBDA_MEMORY]) / _LAMBDA_MB_PER_CORE)
    return min(shares)


def _quotas(groups: Path, own: Path) -> Iterator[float]:
    """Of the groups that this process is in, and of those that they are in."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            # In a container the path may be the host's, of which only the top is there.
            for group in (PurePosixPath(path), *PurePosixPath(path).parents):
                yield from _quota(groups / ("cpu" if controllers else "") / str(group).lstrip("/"))


def _quota(group: Path) -> Iterator[float]:
    """The quota of a group in cores, if it has one: "max" and -1 are none."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        yield int(quota) / int(period)
    with suppress(OSError, ValueError):
        microseconds = int((group / "cpu.cfs_quota_us").read_text())
        if microseconds > 0:
            yield microseconds / int((group / "cpu.cfs_period_us").read_text())
